// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Console (virtio 1.2, section 5.3) with one port: bytes between the guest's `hvc` device and a
//! stream of the host.

use super::{Broken, Device, Driver, EventFlags, Waker, kind};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

const RX: usize = 0;
const TX: usize = 1;

/// Feature: the configuration space has the size of the terminal.
const F_SIZE: u64 = 1 << 0;
/// Bytes that are copied at once.
const PART: usize = 4096;

/// Columns and rows of the terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Characters in a line.
    pub columns: u16,
    /// Lines.
    pub rows: u16,
}

#[derive(Debug, Default)]
struct Shared {
    size: Size,
    waker: Option<Waker>,
}

/// Passes the size of a console's terminal to it.
#[derive(Clone, Debug, Default)]
pub struct Terminal {
    shared: Arc<Mutex<Shared>>,
}

impl Terminal {
    /// Sets the terminal's size. 0 means that it is unknown.
    pub fn resize(&self, size: Size) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.size = size;
        if let Some(waker) = &shared.waker {
            waker.wake();
        }
    }

    fn size(&self) -> Size {
        self.shared
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .size
    }
}

/// The device.
#[derive(Debug)]
pub struct Console {
    stream: UnixStream,
    terminal: Terminal,
    waker: Option<Waker>,
    /// The size that was reported to the driver.
    shown: Size,
    /// Output that the host has not read yet. The guest waits until it has.
    output: Vec<u8>,
    /// The host sends no more; it takes no more.
    input_ended: bool,
    output_ended: bool,
}

impl Console {
    /// A console whose other end is a stream. The guest's output waits until the host reads it.
    /// Once the stream is closed it is dropped.
    ///
    /// # Errors
    /// The stream cannot be made non-blocking.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Console {
            stream,
            terminal: Terminal::default(),
            waker: None,
            shown: Size::default(),
            output: Vec::new(),
            input_ended: false,
            output_ended: false,
        })
    }

    /// For reporting the terminal's size.
    pub fn terminal(&self) -> Terminal {
        self.terminal.clone()
    }

    /// Moves what can be moved in both directions.
    fn work(&mut self, driver: &mut Driver) -> Result<(), Broken> {
        let mut wait = EventFlags::empty();
        if !self.print(driver)? {
            wait |= EventFlags::OUT;
        }
        if self.read(driver)? {
            wait |= EventFlags::IN;
        }
        driver.signal(RX)?;
        driver.signal(TX)?;
        let size = self.terminal.size();
        if size != self.shown {
            self.shown = size;
            driver.config_changed(&self.config());
        }
        if let Some(waker) = self.waker.as_ref().filter(|_| !wait.is_empty()) {
            if let Err(error) = waker.arm(&self.stream, wait) {
                tracing::warn!("console: cannot wait for the host's side: {error}");
            }
        }
        Ok(())
    }

    /// Writes what the guest printed to the stream. False: the host must read first.
    fn print(&mut self, driver: &mut Driver) -> Result<bool, Broken> {
        let memory = Arc::clone(driver.memory());
        while self.flush() {
            let Some(chain) = driver.pop(TX)? else {
                return Ok(true);
            };
            let head = chain.head_index();
            let mut reader = chain
                .reader(&memory)
                .map_err(|_| Broken::Rule("a transmit buffer outside memory"))?;
            let mut part = [0; PART];
            // Buffers of a console are small. A buffer of a GiB would have to wait in parts, so it
            // is truncated.
            while self.output.len() < 16 * PART {
                match reader.read(&mut part) {
                    Ok(0) | Err(_) => break,
                    Ok(count) => self.output.extend_from_slice(&part[..count]),
                }
            }
            driver.push(TX, head, 0)?;
        }
        Ok(false)
    }

    /// Writes what waits. False: not all of it was written.
    fn flush(&mut self) -> bool {
        while !self.output.is_empty() && !self.output_ended {
            match self.stream.write(&self.output) {
                Ok(count) if count > 0 => {
                    self.output.drain(..count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Ok(_) | Err(_) => self.output_ended = true,
            }
        }
        self.output.clear();
        true
    }

    /// Gives the guest what the host sent. True: there may be more later.
    fn read(&mut self, driver: &mut Driver) -> Result<bool, Broken> {
        let memory = Arc::clone(driver.memory());
        while !self.input_ended {
            let Some(chain) = driver.pop(RX)? else {
                // The driver notifies when it has added buffers.
                return Ok(false);
            };
            let head = chain.head_index();
            let mut writer = chain
                .writer(&memory)
                .map_err(|_| Broken::Rule("a receive buffer outside memory"))?;
            let mut part = [0; PART];
            let most = writer.available_bytes().min(PART);
            if most == 0 {
                return Err(Broken::Rule("a receive buffer without room"));
            }
            match self.stream.read(&mut part[..most]) {
                Ok(0) => self.input_ended = true,
                Ok(count) => {
                    writer
                        .write_all(&part[..count])
                        .map_err(|_| Broken::Rule("a receive buffer that shrank"))?;
                    driver.push(RX, head, u32::try_from(count).unwrap_or(0))?;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    driver.put_back(RX);
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.input_ended = true,
            }
            driver.put_back(RX);
        }
        Ok(false)
    }
}

impl Device for Console {
    fn kind(&self) -> u32 {
        kind::CONSOLE
    }

    fn name(&self) -> String {
        "console".to_string()
    }

    fn features(&self) -> u64 {
        F_SIZE
    }

    fn queue_sizes(&self) -> Vec<u16> {
        vec![64, 64]
    }

    /// Columns, rows, number of ports, emergency write register.
    fn config(&self) -> Vec<u8> {
        let size = self.terminal.size();
        let mut config = [0; 12];
        config[0..2].copy_from_slice(&size.columns.to_le_bytes());
        config[2..4].copy_from_slice(&size.rows.to_le_bytes());
        config[4] = 1;
        config.to_vec()
    }

    fn start(&mut self, waker: &Waker) -> anyhow::Result<()> {
        self.waker = Some(waker.clone());
        self.terminal
            .shared
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .waker = Some(waker.clone());
        Ok(())
    }

    fn activate(&mut self, _driver: &mut Driver) -> Result<(), Broken> {
        self.shown = self.terminal.size();
        Ok(())
    }

    fn notified(&mut self, driver: &mut Driver, _queue: usize) -> Result<(), Broken> {
        self.work(driver)
    }

    fn woken(&mut self, driver: &mut Driver) -> Result<(), Broken> {
        self.work(driver)
    }
}
