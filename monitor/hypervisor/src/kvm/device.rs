// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's devices: a thread for each, which sleeps on event counters. KVM rings those of the
//! queues when the guest notifies, and gives the guest an interrupt when the device's line rings.
//! Some devices let a vCPU that notifies by a port do a little of the work itself ([`Kicks`]).

use super::bus::{HOST, Port, QUEUE_NOTIFY, REQUEST, Request};
use super::core::Core;
use super::kicks::Kicks;
use super::layout::{DEVICE_PIN, DEVICES, MAX_DEVICES, doorbell};
use crate::device_work::{Transport, Work};
use anyhow::{Context, bail};
use kvm_ioctls::{IoEventAddress, VmFd};
use paravane_confine::Files;
use paravane_devices::counters::{Counters, count};
use paravane_devices::mmio::{
    INTERRUPT_CONFIG, INTERRUPT_STATUS, INTERRUPT_USED, PAGE, show_config,
};
use paravane_devices::{
    Area, Ending, Interrupt, Line, Message, Model, NoMessage, Page, Setting, Wake,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

/// Queues of a device: a bit for each.
const MAX_QUEUES: usize = 32;
const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// The kind of virtio's devices.
pub const VIRTIO: u32 = kind(paravane_abi::DEVICE_VIRTIO_MMIO);
/// The kind of bridges to a virtual bus.
pub const BRIDGE: u32 = kind(paravane_abi::DEVICE_VBUS);

/// Converts a small constant of the table.
const fn kind(value: u64) -> u32 {
    assert!(value <= 0xff);
    #[allow(clippy::cast_possible_truncation)] // just asserted
    {
        value as u32
    }
}

fn kind_of(device: &Model) -> u32 {
    match device {
        Model::Virtio(_) => VIRTIO,
        Model::Own(device) => device.kind(),
    }
}

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
    device: Model,
    port: Arc<Port>,
    page: Page,
    /// One for each queue.
    queues: Vec<EventFd>,
    /// See [`OwnDevice::rare`](paravane_devices::OwnDevice::rare).
    rare: Option<Setting>,
}

impl Devices {
    /// Takes the devices.
    ///
    /// # Errors
    /// There are too many, or the host gives no memory or event counters.
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
            let queues = match &device {
                Model::Virtio(device) => device.queue_sizes().len(),
                Model::Own(device) => usize::try_from(device.numbers())?,
            };
            let bridge = kind_of(&device) == BRIDGE;
            if queues > MAX_QUEUES {
                bail!("{} has {queues} queues", device.name());
            }
            let rare = match &device {
                Model::Virtio(_) => None,
                Model::Own(device) => device.rare(),
            };
            prepared.push(Prepared {
                device,
                rare,
                port: Arc::new(Port::new(page.clone(), counter()?, counter()?, bridge)),
                page,
                queues: (0..queues).map(|_| counter()).collect::<Result<_, _>>()?,
            });
        }
        Ok(Devices {
            all: prepared,
            area,
        })
    }

    /// The kinds of the devices, `VMI_DEVICE_*`.
    pub fn kinds(&self) -> impl Iterator<Item = u32> {
        self.all.iter().map(|one| kind_of(&one.device))
    }

    /// Those that are bridges to a virtual bus: a bit for each.
    pub fn bridges(&self) -> u32 {
        let numbers = (0u32..).zip(self.kinds());
        let found = numbers.filter(|(_, kind)| *kind == BRIDGE);
        found.fold(0, |all, (number, _)| all | 1 << number)
    }

    /// Whether a vCPU may do work of one of them.
    pub fn any_rare(&self) -> bool {
        self.all.iter().any(|one| one.rare.is_some())
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
        for ((number, pin), one) in (0u16..).zip(DEVICE_PIN..).zip(&self.all) {
            let page = DEVICES + u64::from(number) * PAGE as u64;
            let notify = IoEventAddress::Mmio(page + QUEUE_NOTIFY);
            let bell_port = IoEventAddress::Pio(doorbell(number).into());
            for (queue, bell) in (0u32..).zip(&one.queues) {
                let connect = |at| machine.register_ioevent(bell, at, queue);
                connect(&notify).context("cannot connect a queue")?;
                // Where the vCPU may do the work, its thread gets the notification.
                if matches!(one.device, Model::Own(_)) && one.rare.is_none() {
                    connect(&bell_port).context("cannot connect a doorbell")?;
                }
            }
            machine
                .register_irqfd(&one.port.line, pin)
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
                rare,
            } = one;
            let wake = Arc::new(Bell {
                port: Arc::clone(&port),
                ending: core.end.ending.clone(),
            });
            let waker = core.reactor.waker(number as u64, wake);
            let name = device.name();
            let started = match &mut device {
                Model::Virtio(device) => device.start(&waker),
                Model::Own(device) => device.start(&waker),
            };
            started.with_context(|| format!("cannot start the device {name}"))?;
            let counters = Arc::new(Counters::default());
            core.devices.add(&name, device.attributes(), &counters);
            let transport = Transport {
                memory: Arc::clone(&memory),
                page: page.clone(),
                line: Arc::new(Pin {
                    core: Arc::clone(core),
                    page,
                    port: Arc::clone(&port),
                    counters: Arc::clone(&counters),
                }),
                counters: Arc::clone(&counters),
                ending: core.end.ending.clone(),
            };
            let work = Work::new(device, transport).with_context(|| format!("device {name}"))?;
            let kicks = Arc::new(Kicks::new(&port, queues, work, rare, &counters));
            port.share(&kicks);
            threads.push(Thread {
                core: Arc::clone(core),
                port,
                kicks,
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
    core: Arc<Core>,
    page: Page,
    port: Arc<Port>,
    counters: Arc<Counters>,
}

impl Pin {
    fn interrupt(&self, why: u32) {
        self.page
            .register(INTERRUPT_STATUS)
            .fetch_or(why, Ordering::SeqCst);
        self.raise();
    }
}

impl Line for Pin {
    fn raise(&self) {
        count(&self.counters.interrupts, 1);
        self.port.interrupt();
    }

    fn message(&self, apic: u32, vector: u32) -> Result<Message, NoMessage> {
        Message::new(apic, vector, self.core.vcpus.len())
    }

    fn send(&self, message: Message) {
        count(&self.counters.interrupts, 1);
        self.core.send(message);
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
    kicks: Arc<Kicks>,
}

impl Thread {
    /// The device's name.
    pub fn name(&self) -> String {
        self.kicks.work().name()
    }

    /// The files that the device still opens.
    pub fn files(&self) -> Files {
        self.kicks.work().files()
    }

    /// Works until the machine is stopped.
    pub fn run(self) {
        let mut left = 0;
        while !self.core.stopping() {
            let queues = left | self.wait(left != 0);
            let reasons = self.port.take();
            let mut work = self.kicks.work();
            if reasons & REQUEST != 0 {
                self.serve_request(&mut work);
            }
            let queues = queues | self.kicks.left();
            left = work.serve(reasons & HOST != 0, queues);
        }
    }

    /// Carries out what a vCPU waits for.
    fn serve_request(&self, work: &mut Work) {
        let answer = match self.port.asked() {
            Some(Request::Store(store)) => {
                work.write(store.offset, store.width, store.value);
                0
            }
            Some(Request::Command(address)) => work.command(address),
            None => return,
        };
        self.port.answer(answer);
    }

    /// Waits until a counter has rung, unless `busy`. Returns the queues that were notified.
    fn wait(&self, busy: bool) -> u32 {
        let queues = &self.kicks.queues;
        let all = queues.iter().chain([&self.port.bell]);
        let mut files: Vec<_> = all
            .clone()
            .map(|bell| PollFd::from_borrowed_fd(borrowed(bell), PollFlags::IN))
            .collect();
        self.kicks.set_sleeps(!busy);
        // A signal ends the wait as well; nothing has rung then.
        let _ = poll(&mut files, busy.then_some(&NOW));
        self.kicks.set_sleeps(false);
        let mut rung = 0;
        for ((bit, bell), file) in all.enumerate().zip(&files) {
            if file.revents().contains(PollFlags::IN) && bell.read().is_ok() {
                rung |= 1u64 << bit;
            }
        }
        // The last one is the bell of the port, which no bit of a queue stands for.
        let all_queues = (1u64 << queues.len()) - 1;
        u32::try_from(rung & all_queues).unwrap_or(0)
    }
}

fn borrowed(bell: &EventFd) -> BorrowedFd<'_> {
    // SAFETY: the descriptor is open as long as the counter, which is borrowed.
    unsafe { BorrowedFd::borrow_raw(bell.as_raw_fd()) }
}
