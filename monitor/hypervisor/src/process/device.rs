// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's devices: a thread for each, between the layer's half (`layers/process/device/`)
//! and [`Device`].
//!
//! A device's thread sleeps until `notify` has bits, which say what there is to do: a queue was
//! notified, a vCPU waits for a register write, or something happened on the host. The guest can
//! write all of it at any time: a bit set without reason costs a look, and a request may contain
//! whatever a driver may write.

use super::core::Core;
use super::device_place::{Interrupts, Place};
use super::vm::Heuristics;
use super::{kick, sys};
use crate::device_work::{Transport, Work};
use crate::size::size;
use anyhow::{Context, bail};
use paravane_abi::process as ph;
use paravane_abi::process::area::{self, RequestKind, RequestState};
use paravane_confine::Files;
use paravane_devices::counters::{Counters, count};
use paravane_devices::mmio::{
    INTERRUPT_CONFIG, INTERRUPT_STATUS, INTERRUPT_USED, PAGE, show_config,
};
use paravane_devices::{
    Area, Ending, Interrupt, Line, Memory, Message, Model, NoMessage, Page, Wake,
};
use paravane_wakeup::{sleep_unless, wake_announced};
use rustix::thread::sched_getcpu;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bits of `notify`.
const fn bits(value: u64) -> u32 {
    assert!(value <= 0xffff_ffff);
    #[allow(clippy::cast_possible_truncation)] // just asserted
    {
        value as u32
    }
}
const REGISTER: u32 = bits(ph::PHV_NOTIFY_REGISTER);
const HOST: u32 = bits(ph::PHV_NOTIFY_HOST);
/// The others say which queues were notified.
const QUEUES: u32 = (1 << ph::PHV_MAX_QUEUES) - 1;

// A bit for each device.
const _: () = assert!(ph::PHV_MAX_DEVICES <= u32::BITS as u64);

/// The register pages are below 512 GiB, which every 64-bit processor can address, unless RAM
/// reaches there.
const GPA: u64 = 0x7f_f000_0000;

/// The devices of a machine before its start.
pub struct Devices {
    all: Vec<Model>,
    area: Option<Arc<Area>>,
    ram: u64,
    heuristics: Heuristics,
}

impl Devices {
    /// Takes the devices; `ram` is the size of guest memory in bytes. The heuristics say
    /// whether their threads may follow the vCPUs that wait for them ([`Place`]).
    ///
    /// # Errors
    /// There are too many devices, or the host gives no memory for their registers.
    pub fn new(all: Vec<Model>, ram: u64, heuristics: Heuristics) -> anyhow::Result<Self> {
        if all.len() > size(ph::PHV_MAX_DEVICES) {
            bail!(
                "{} devices: at most {} are possible",
                all.len(),
                ph::PHV_MAX_DEVICES
            );
        }
        for device in &all {
            let Model::Virtio(device) = device else {
                continue;
            };
            let queues = device.queue_sizes().len();
            assert!(
                queues <= size(ph::PHV_MAX_QUEUES),
                "{} has {queues} queues",
                device.name()
            );
        }
        let area = (!all.is_empty())
            .then(|| Area::new(all.len()))
            .transpose()
            .context("cannot make the devices' registers")?;
        Ok(Devices {
            all,
            area,
            ram,
            heuristics,
        })
    }

    /// The number of devices.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Those that are bridges to a virtual bus: a bit for each.
    pub fn bridges(&self) -> u32 {
        let bridge = bits(paravane_abi::DEVICE_VBUS);
        let numbers = (0u32..).zip(&self.all);
        let found = numbers.filter(|(_, device)| match device {
            Model::Virtio(_) => false,
            Model::Own(device) => device.kind() == bridge,
        });
        found.fold(0, |all, (number, _)| all | 1 << number)
    }

    /// The register pages, if there are devices.
    pub fn area(&self) -> Option<&Arc<Area>> {
        self.area.as_ref()
    }

    /// Guest-physical address of the first register page. The others follow, in the order of the
    /// devices.
    pub fn gpa(&self) -> u64 {
        GPA.max(self.ram)
    }

    /// The device table for the kernel.
    pub fn table(&self) -> Vec<paravane_abi::Device> {
        let entry = |(line, device): (u32, &Model)| paravane_abi::Device {
            kind: match device {
                Model::Virtio(_) => bits(paravane_abi::DEVICE_VIRTIO_MMIO),
                Model::Own(device) => device.kind(),
            },
            line,
            gpa: self.gpa() + u64::from(line) * PAGE as u64,
            size: PAGE as u64,
            reserved: 0,
        };
        (0..).zip(&self.all).map(entry).collect()
    }

    /// Prepares each device's thread.
    ///
    /// # Errors
    /// A device cannot be started.
    pub fn into_threads(
        self,
        core: &Arc<Core>,
        memory: &Arc<Memory>,
    ) -> anyhow::Result<Vec<Thread>> {
        let Some(area) = self.area else {
            return Ok(Vec::new());
        };
        let mut threads = Vec::new();
        for (number, mut device) in self.all.into_iter().enumerate() {
            let interrupts = Arc::new(Interrupts::default());
            let bell = Arc::new(Bell {
                core: Arc::clone(core),
                number,
                interrupts: Arc::clone(&interrupts),
            });
            let waker = core.reactor.waker(number as u64, bell);
            let name = device.name();
            let started = match &mut device {
                Model::Virtio(device) => device.start(&waker),
                Model::Own(device) => device.start(&waker),
            };
            started.with_context(|| format!("cannot start the device {name}"))?;
            let page = area.page(number);
            let counters = Arc::new(Counters::default());
            let mut attributes = device.attributes();
            if let Model::Own(device) = &device {
                // Which notifications are rare matters to vCPUs that do its work. None does here.
                let rare = device.rare();
                attributes.retain(|one| rare.as_ref().is_none_or(|rare| one.name() != rare.name()));
            }
            core.devices.add(&name, attributes, &counters);
            let line = Arc::new(VcpuLine {
                core: Arc::clone(core),
                number,
                page: page.clone(),
                counters: Arc::clone(&counters),
                interrupts,
            });
            let transport = Transport {
                memory: Arc::clone(memory),
                page,
                line: Arc::clone(&line) as Arc<dyn Line>,
                counters,
                ending: core.end.ending.clone(),
            };
            let work = Work::new(device, transport).with_context(|| format!("device {name}"))?;
            threads.push(Thread {
                line,
                core: Arc::clone(core),
                number,
                heuristics: self.heuristics,
                work,
                left: 0,
            });
        }
        Ok(threads)
    }
}

impl fmt::Debug for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.all.iter().map(|device| device.name()).collect();
        f.debug_struct("Devices")
            .field("all", &names)
            .finish_non_exhaustive()
    }
}

/// Runs the thread that waits for all devices' files, until the machine is stopped.
pub fn run_reactor(core: &Core) {
    let ready = |device: u64| {
        if let Ok(number) = usize::try_from(device) {
            wake(core, number);
        }
    };
    if let Err(error) = core.reactor.run(ready) {
        core.fail(format!("cannot wait for the devices' files: {error}"));
    }
}

/// Makes a device's thread look at what happened on the host.
fn wake(core: &Core, number: usize) {
    let area::Device {
        notify, sleeping, ..
    } = core.shared.device(number);
    notify.fetch_or(HOST, Ordering::SeqCst);
    wake_announced(sleeping, || sys::futex_wake(sleeping));
}

/// Wakes every device's thread, whatever a guest wrote about which of them sleep.
pub fn wake_all(core: &Core) {
    for number in 0..size(ph::PHV_MAX_DEVICES) {
        let area::Device {
            notify, sleeping, ..
        } = core.shared.device(number);
        notify.fetch_or(HOST, Ordering::SeqCst);
        sleeping.store(0, Ordering::SeqCst);
        sys::futex_wake(sleeping);
    }
}

struct Bell {
    core: Arc<Core>,
    number: usize,
    interrupts: Arc<Interrupts>,
}

impl Wake for Bell {
    fn wake(&self) {
        wake(&self.core, self.number);
    }

    fn ending(&self) -> Ending {
        self.core.end.ending.clone()
    }

    fn waited(&self, time: Duration) {
        self.interrupts.waited(time);
    }
}

/// A device's interrupt.
struct VcpuLine {
    core: Arc<Core>,
    number: usize,
    page: Page,
    counters: Arc<Counters>,
    interrupts: Arc<Interrupts>,
}

impl VcpuLine {
    fn interrupt(&self, why: u32) {
        self.page
            .register(INTERRUPT_STATUS)
            .fetch_or(why, Ordering::SeqCst);
        self.raise();
    }
}

impl Line for VcpuLine {
    fn raise(&self) {
        count(&self.counters.interrupts, 1);
        let was = kick::raise(&self.core, self.number);
        self.interrupts.count(was);
    }

    fn message(&self, apic: u32, vector: u32) -> Result<Message, NoMessage> {
        Message::new(apic, vector, self.core.vcpus)
    }

    fn send(&self, message: Message) {
        count(&self.counters.interrupts, 1);
        // The vCPU that polls for this card, the place of the card's thread, and the line follow
        // the vCPU that the card interrupts. Only events still come by the line.
        let notifier = &self.core.shared.device(self.number).notifier;
        if notifier.load(Ordering::Relaxed) != message.vcpu() {
            notifier.store(message.vcpu(), Ordering::Relaxed);
        }
        let was = kick::send(&self.core, message);
        self.interrupts.count(was);
    }

    fn busy(&self) -> bool {
        kick::runs(&self.core, kick::notifier(&self.core, self.number))
    }

    fn looks(&self, on: bool) {
        // The thread may have moved since the last time.
        let cpu = on
            .then(sched_getcpu)
            .and_then(|cpu| u32::try_from(cpu).ok());
        let looks = cpu.map_or(0, |cpu| cpu + 1);
        let device = self.core.shared.device(self.number);
        // The vCPU reads it over and over.
        if device.looks.load(Ordering::Relaxed) != looks {
            device.looks.store(looks, Ordering::Relaxed);
        }
        self.interrupts.looks(on);
    }
}

impl Interrupt for VcpuLine {
    fn used(&self) {
        self.interrupt(INTERRUPT_USED);
    }

    fn config(&self, bytes: &[u8]) {
        show_config(&self.page, bytes);
        self.interrupt(INTERRUPT_CONFIG);
    }
}

/// A device and its registers.
pub struct Thread {
    core: Arc<Core>,
    number: usize,
    heuristics: Heuristics,
    line: Arc<VcpuLine>,
    work: Work,
    /// Queues, a bit for each, that the last round left before they were empty.
    left: u32,
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
        let Heuristics {
            device_place,
            disk_cpus,
            ..
        } = self.heuristics;
        let mut place = device_place.then(|| Place::new(disk_cpus));
        while !self.core.stopping() {
            if let Some(place) = &mut place {
                let VcpuLine {
                    interrupts,
                    counters,
                    ..
                } = &*self.line;
                place.follow(&self.core, self.number, interrupts, counters);
            }
            let bits = self.take();
            if bits & REGISTER != 0 {
                self.serve_requests();
            }
            self.left = self.work.serve(bits & HOST != 0, bits & QUEUES);
        }
    }

    /// Takes the work to do. Sleeps if there is none, and may then return none.
    fn take(&self) -> u32 {
        let area::Device {
            notify, sleeping, ..
        } = self.core.shared.device(self.number);
        let bits = notify.swap(0, Ordering::SeqCst) | self.left;
        if bits != 0 {
            return bits;
        }
        sleep_unless(
            sleeping,
            || notify.load(Ordering::SeqCst) != 0,
            || sys::futex_wait(sleeping, 1, None),
        );
        0
    }

    /// Carries out the register writes and commands that vCPUs wait for.
    fn serve_requests(&mut self) {
        let core = Arc::clone(&self.core);
        for vcpu in 0..core.vcpus {
            let request = core.shared.request(vcpu);
            if !request.state.is(RequestState::Asked, Ordering::Acquire)
                || size(request.device.load(Ordering::Relaxed).into()) != self.number
            {
                continue;
            }
            let value = request.value.load(Ordering::Relaxed);
            let answer = if request.kind.is(RequestKind::Command, Ordering::Relaxed) {
                self.work.command(value)
            } else {
                let offset = request.offset.load(Ordering::Relaxed);
                let width = request.width.load(Ordering::Relaxed);
                self.work.write(offset, width, value);
                0
            };
            request.answer.store(answer as u32, Ordering::Relaxed);
            request.state.store(RequestState::Done, Ordering::Release);
            sys::futex_wake(request.state.word());
        }
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}
