// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's devices: a thread for each, which sleeps on event counters. KVM rings those of the
//! queues when the guest notifies, and gives the guest an interrupt when the device's line rings.

use super::bus::{HOST, Port, QUEUE_NOTIFY, STORE};
use super::core::Core;
use super::layout::{DEVICE_PIN, DEVICES, MAX_DEVICES};
use crate::device_work::{Transport, Work};
use anyhow::{Context, bail};
use kvm_ioctls::{IoEventAddress, VmFd};
use paravane_confine::Files;
use paravane_devices::counters::{Counters, count};
use paravane_devices::mmio::{
    INTERRUPT_CONFIG, INTERRUPT_STATUS, INTERRUPT_USED, PAGE, show_config,
};
use paravane_devices::{Area, Device, Ending, Interrupt, Line, Model, Page, Wake};
use rustix::event::{PollFd, PollFlags, poll};
use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

/// Queues of a device: a bit for each.
const MAX_QUEUES: usize = 32;

/// An event counter that neither blocks nor survives an exec.
pub fn counter() -> anyhow::Result<EventFd> {
    EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC).context("cannot make an event counter")
}

/// The devices of a machine before its start.
pub struct Devices {
    all: Vec<Prepared>,
    /// The register pages, if there are devices.
    pub area: Option<Arc<Area>>,
}

struct Prepared {
    device: Box<dyn Device>,
    port: Arc<Port>,
    page: Page,
    /// One for each queue.
    queues: Vec<EventFd>,
    line: EventFd,
}

impl Devices {
    /// Takes the devices.
    ///
    /// # Errors
    /// There are too many, or one that is not virtio's, or the host gives no memory or event
    /// counters.
    pub fn new(all: Vec<Model>) -> anyhow::Result<Self> {
        if all.len() > MAX_DEVICES {
            bail!("{} devices: at most {MAX_DEVICES} are possible", all.len());
        }
        let area = (!all.is_empty())
            .then(|| Area::new(all.len()))
            .transpose()
            .context("cannot make the devices' registers")?;
        let mut prepared = Vec::new();
        for (number, device) in all.into_iter().enumerate() {
            let Some(page) = area.as_ref().map(|area| area.page(number)) else {
                break;
            };
            let Model::Virtio(device) = device else {
                bail!(
                    "{}: a machine on KVM has virtio devices only",
                    device.name()
                );
            };
            let queues = device.queue_sizes().len();
            if queues > MAX_QUEUES {
                bail!("{} has {queues} queues", device.name());
            }
            prepared.push(Prepared {
                device,
                port: Arc::new(Port::new(page.clone(), counter()?)),
                page,
                queues: (0..queues).map(|_| counter()).collect::<Result<_, _>>()?,
                line: counter()?,
            });
        }
        Ok(Devices {
            all: prepared,
            area,
        })
    }

    /// The number of devices.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// What vCPUs reach of the devices.
    pub fn ports(&self) -> Vec<Arc<Port>> {
        self.all.iter().map(|one| Arc::clone(&one.port)).collect()
    }

    /// Has KVM ring the queues' counters, and interrupt when a line rings.
    ///
    /// # Errors
    /// The host's.
    pub fn register(&self, machine: &VmFd) -> anyhow::Result<()> {
        for ((number, pin), one) in (0u64..).zip(DEVICE_PIN..).zip(&self.all) {
            let notify = IoEventAddress::Mmio(DEVICES + number * PAGE as u64 + QUEUE_NOTIFY);
            for (queue, bell) in (0u32..).zip(&one.queues) {
                machine
                    .register_ioevent(bell, &notify, queue)
                    .context("cannot connect a queue")?;
            }
            machine
                .register_irqfd(&one.line, pin)
                .context("cannot connect an interrupt")?;
        }
        Ok(())
    }

    /// Prepares each device's thread.
    ///
    /// # Errors
    /// A device cannot be started.
    pub fn into_threads(self, core: &Arc<Core>) -> anyhow::Result<Vec<Thread>> {
        let memory = core.ram.memory();
        let mut threads = Vec::new();
        for (number, one) in self.all.into_iter().enumerate() {
            let Prepared {
                mut device,
                port,
                page,
                queues,
                line,
            } = one;
            let wake = Arc::new(Bell {
                port: Arc::clone(&port),
                ending: core.end.ending.clone(),
            });
            let waker = core.reactor.waker(number as u64, wake);
            let name = device.name();
            device
                .start(&waker)
                .with_context(|| format!("cannot start the device {name}"))?;
            let counters = Arc::new(Counters::default());
            core.devices.add(&name, &counters);
            let transport = Transport {
                memory: Arc::clone(&memory),
                page: page.clone(),
                line: Arc::new(Pin {
                    page,
                    line,
                    counters: Arc::clone(&counters),
                }),
                counters,
                ending: core.end.ending.clone(),
            };
            let work = Work::new(Model::Virtio(device), transport)
                .with_context(|| format!("device {name}"))?;
            threads.push(Thread {
                core: Arc::clone(core),
                port,
                queues,
                work,
            });
        }
        Ok(threads)
    }
}

impl fmt::Debug for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.all.iter().map(|one| one.device.name()).collect();
        f.debug_struct("Devices")
            .field("all", &names)
            .finish_non_exhaustive()
    }
}

/// Runs the thread that waits for all devices' files, until the machine is stopped.
pub fn run_reactor(core: &Core, ports: &[Arc<Port>]) {
    let ready = |device: u64| {
        let port = usize::try_from(device).ok().and_then(|n| ports.get(n));
        if let Some(port) = port {
            port.wake(HOST);
        }
    };
    if let Err(error) = core.reactor.run(ready) {
        core.fail_without_signal(format!("cannot wait for the devices' files: {error}"));
    }
}

struct Bell {
    port: Arc<Port>,
    ending: Ending,
}

impl Wake for Bell {
    fn wake(&self) {
        self.port.wake(HOST);
    }

    fn ending(&self) -> Ending {
        self.ending.clone()
    }
}

/// A device's interrupt.
struct Pin {
    page: Page,
    line: EventFd,
    counters: Arc<Counters>,
}

impl Pin {
    fn interrupt(&self, why: u32) {
        count(&self.counters.interrupts, 1);
        self.page
            .register(INTERRUPT_STATUS)
            .fetch_or(why, Ordering::SeqCst);
        self.raise();
    }
}

impl Line for Pin {
    fn raise(&self) {
        // Fails only if the counter is full: then KVM has not taken the last ring yet.
        let _ = self.line.write(1);
    }
}

impl Interrupt for Pin {
    fn used(&self) {
        self.interrupt(INTERRUPT_USED);
    }

    fn config(&self, bytes: &[u8]) {
        show_config(&self.page, bytes);
        self.interrupt(INTERRUPT_CONFIG);
    }
}

/// A device's thread.
#[derive(Debug)]
pub struct Thread {
    core: Arc<Core>,
    port: Arc<Port>,
    queues: Vec<EventFd>,
    work: Work,
}

impl Thread {
    /// The device's name.
    pub fn name(&self) -> String {
        self.work.name()
    }

    /// The files that the device still opens.
    pub fn files(&self) -> Files {
        self.work.files()
    }

    /// Works until the machine is stopped.
    pub fn run(mut self) {
        let mut left = 0;
        while !self.core.stopping() {
            let queues = left | self.wait(left != 0);
            let reasons = self.port.take();
            if reasons & STORE != 0 {
                if let Some(store) = self.port.asked() {
                    self.work.write(store.offset, store.width, store.value);
                    self.port.answer();
                }
            }
            left = self.work.serve(reasons & HOST != 0, queues);
        }
    }

    /// Waits until a counter has rung, unless `busy`. Returns the queues that were notified.
    fn wait(&self, busy: bool) -> u32 {
        let all = self.queues.iter().chain([&self.port.bell]);
        let mut files: Vec<_> = all
            .map(|bell| PollFd::from_borrowed_fd(borrowed(bell), PollFlags::IN))
            .collect();
        if !busy {
            // A signal ends the wait as well; nothing has rung then.
            let _ = poll(&mut files, None);
        }
        // Fails if it has not rung.
        let _ = self.port.bell.read();
        let mut rung = 0;
        for (bit, bell) in self.queues.iter().enumerate() {
            if bell.read().is_ok() {
                rung |= 1 << bit;
            }
        }
        rung
    }
}

fn borrowed(bell: &EventFd) -> BorrowedFd<'_> {
    // SAFETY: the descriptor is open as long as the counter, which is borrowed.
    unsafe { BorrowedFd::borrow_raw(bell.as_raw_fd()) }
}
