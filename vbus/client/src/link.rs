// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A connection to a device of a bus, without its queues.

use crate::control::{Control, Error, unexpected};
use paravane_vbus::{ConnectionId, Event, Interface, Kind, Name};
use paravane_vbus_protocol::{Reply, Request, Shared};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

/// Pause between two attempts to connect again.
pub const PAUSE: Duration = Duration::from_millis(20);

/// What a client wants.
#[derive(Clone, Debug)]
pub struct Options {
    /// vbusd's socket.
    pub socket: PathBuf,
    /// The bus.
    pub bus: String,
    /// The device.
    pub device: String,
    /// Descriptors of each queue: a power of two.
    pub count: u32,
    /// Bytes of a buffer.
    pub buffer: u32,
}

/// A connection.
#[derive(Debug)]
pub struct Link {
    pub control: Control,
    pub interface: Interface,
    connection: ConnectionId,
    kick: OwnedFd,
    bell: OwnedFd,
}

impl Link {
    /// Joins a bus, opens its device with this memory, and shares queues.
    ///
    /// # Errors
    /// vbusd cannot be reached or refuses, or there is no such device.
    pub fn open(
        options: &Options,
        memory: BorrowedFd<'_>,
        queues: &[Shared],
    ) -> Result<Self, Error> {
        let mut control = Control::connect(&options.socket)?;
        let bus = Name::new(&options.bus)?;
        control.ask(&Request::Join { bus })?;
        let found = match control.ask(&Request::Interfaces)? {
            Reply::Interfaces(all) => all.into_iter().find(|one| one.name == options.device),
            other => return Err(unexpected(&other)),
        };
        let interface = found.ok_or_else(|| {
            let text = format!("there is no device {:.40} on the bus", options.device);
            paravane_vbus::Error::new(Kind::NotFound, text)
        })?;
        let request = Request::Open {
            interface: interface.id,
            version: interface.version,
        };
        let (reply, files) = control.ask_with(&request, &[memory])?;
        let (connection, [kick, bell]) = match (reply, <[OwnedFd; 2]>::try_from(files)) {
            (Reply::Opened(connection), Ok(files)) => (connection, files),
            (other, _) => return Err(unexpected(&other)),
        };
        let mut link = Link {
            control,
            interface,
            connection,
            kick,
            bell,
        };
        link.share(queues)?;
        Ok(link)
    }

    /// Shares queues.
    pub fn share(&mut self, queues: &[Shared]) -> Result<(), Error> {
        let connection = self.connection;
        for &shared in queues {
            self.control.ask(&Request::Share { connection, shared })?;
        }
        Ok(())
    }

    /// Lets the device lend slots: the offset of their words, their number, the size of each in
    /// bytes, and the file that contains them.
    pub fn lend(
        &mut self,
        (table, [slots, size], file): (u64, [u32; 2], BorrowedFd<'_>),
    ) -> Result<(), Error> {
        let request = Request::Lend {
            connection: self.connection,
            table,
            slots,
            size,
        };
        self.control.ask_with(&request, &[file])?;
        Ok(())
    }

    /// Calls the device.
    pub fn call(&mut self, call: u32, argument: &[u8]) -> Result<Vec<u8>, Error> {
        let request = Request::Call {
            connection: self.connection,
            call,
            argument: argument.to_vec(),
        };
        match self.control.ask(&request)? {
            Reply::Bytes(bytes) => Ok(bytes),
            other => Err(unexpected(&other)),
        }
    }

    /// Sets the priority of the connection.
    pub fn prioritize(&mut self, priority: u8) -> Result<(), Error> {
        let connection = self.connection;
        self.control.ask(&Request::Prioritize {
            connection,
            priority,
        })?;
        Ok(())
    }

    /// Notifies the device.
    pub fn notify(&self) {
        // Fails only if the counter is full, which also wakes the thread.
        let _ = rustix::io::write(&self.kick, &1u64.to_ne_bytes());
    }

    /// The files for notifications and for events.
    pub fn files(&self) -> [BorrowedFd<'_>; 2] {
        [self.bell.as_fd(), self.control.socket()]
    }

    /// The file for notifications.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Takes the notifications from the socket.
    pub fn drain(&self) -> Result<(), Error> {
        let mut bytes = [0; 64];
        match recv(&self.bell, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((_, 0)) | Err(Errno::CONNRESET) => {
                Err(Error::Lost("the device has closed it".to_string()))
            }
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(error) => Err(Error::Host("cannot read a notification", error)),
        }
    }

    /// The next event of the bus, with its file. The end of this connection is an error. Lenders at
    /// another connection are none of this one.
    pub fn event(&mut self) -> Result<Option<(Event, Option<OwnedFd>)>, Error> {
        loop {
            let event = self.control.event_with()?;
            match event {
                Some((Event::Closed { connection, why }, _)) if connection == self.connection => {
                    return Err(Error::Lost(why));
                }
                Some((Event::Removed, _)) => {
                    return Err(Error::Lost("the client is on no bus any more".into()));
                }
                Some((
                    Event::Lends { connection, .. } | Event::Withdrawn { connection, .. },
                    _,
                )) if connection != self.connection => {}
                event => return Ok(event),
            }
        }
    }
}

/// Whether another attempt to connect may succeed after this error.
pub fn may_come_back(error: &Error) -> bool {
    match error {
        Error::Refused(refused) => matches!(refused.kind(), Kind::NotFound | Kind::Busy),
        Error::Unreachable(..) | Error::Lost(_) => true,
        _ => false,
    }
}
