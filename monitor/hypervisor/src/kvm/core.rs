// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the threads of one machine share.

use super::bus::Bus;
use super::ioapic::{self, Ioapic, Route};
use super::layout::SERIAL_PIN;
use super::ports::Ports;
use super::stops::Stops;
use crate::device_list::DeviceList;
use crate::end_state::EndState;
use crate::output::{End, Output};
use crate::output_queue::Outputs;
use crate::ram::Ram;
use crate::thread_signal;
use kvm_bindings::kvm_msi;
use kvm_ioctls::VmFd;
use paravane_devices::{Area, Message, Reactor};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// A message that gives the target a non-maskable interrupt.
const MSI_NMI: u32 = 4 << 8;

/// One machine. The fields are dropped in order: KVM's machine before the memory that it uses.
#[derive(Debug)]
pub struct Core {
    /// KVM's machine.
    pub machine: VmFd,
    /// Guest memory, which must stay mapped as long as KVM may use it.
    pub ram: Ram,
    /// The devices' register pages, likewise.
    _area: Option<Arc<Area>>,
    /// The ports.
    pub ports: Ports,
    /// The I/O APIC.
    pub ioapic: Ioapic,
    /// Registers of devices.
    pub bus: Bus,
    /// The devices' counters.
    pub devices: DeviceList,
    /// The files of all devices.
    pub reactor: Arc<Reactor>,
    /// Whether and how the machine ends.
    pub end: EndState,
    /// The console and the end.
    pub outputs: Arc<Outputs<Output>>,
    /// The vCPUs.
    pub vcpus: Vec<Vcpu>,
    /// Their stops for a debugger.
    pub stops: Stops,
    ended: AtomicBool,
    started: Mutex<bool>,
    start: Condvar,
}

/// What other threads see of a vCPU.
#[derive(Debug, Default)]
pub struct Vcpu {
    /// The id of its thread; 0: it does not run.
    thread: AtomicU32,
    /// Exits to this program.
    pub exits: AtomicU64,
}

impl Vcpu {
    /// Says that the calling thread runs it.
    pub fn enter(&self) {
        let id = rustix::thread::gettid().as_raw_nonzero().get();
        self.thread.store(id.unsigned_abs(), Ordering::SeqCst);
    }

    /// Says that no thread runs it any more.
    pub fn leave(&self) {
        self.thread.store(0, Ordering::SeqCst);
    }
}

/// The parts of a machine.
#[derive(Debug)]
pub struct Parts {
    pub machine: VmFd,
    pub ram: Ram,
    pub area: Option<Arc<Area>>,
    pub ports: Ports,
    pub bus: Bus,
    pub reactor: Arc<Reactor>,
    pub outputs: Arc<Outputs<Output>>,
    pub vcpus: usize,
    /// The host's kernel can let interrupts wait while a debugger steps.
    pub block_interrupts: bool,
}

impl Core {
    /// Puts the parts together.
    pub fn new(parts: Parts) -> Self {
        let Parts {
            machine,
            ram,
            area,
            ports,
            bus,
            reactor,
            outputs,
            vcpus,
            block_interrupts,
        } = parts;
        Core {
            machine,
            ram,
            _area: area,
            ports,
            ioapic: Ioapic::new(),
            bus,
            devices: DeviceList::default(),
            reactor,
            end: EndState::default(),
            outputs,
            vcpus: (0..vcpus).map(|_| Vcpu::default()).collect(),
            stops: Stops::new(vcpus, block_interrupts),
            ended: AtomicBool::new(false),
            started: Mutex::new(false),
            start: Condvar::new(),
        }
    }

    /// Writes a register of the I/O APIC.
    ///
    /// A kernel masks a pin while it moves its interrupt to another vCPU. KVM then has no route,
    /// and drops what the line rings. A virtio device would not ring again before its driver has
    /// served the last interrupt, so a line whose pin has a route again is rung again.
    ///
    /// # Errors
    /// The host does not take the routes.
    pub fn write_ioapic(&self, offset: u64, value: u32) -> io::Result<()> {
        let routes = |routes: &[Route]| self.route(routes);
        let gained = self.ioapic.write(offset, value, routes)?;
        if gained >> SERIAL_PIN & 1 != 0 {
            self.ports.interrupt_again();
        }
        self.bus.interrupt_again(gained);
        Ok(())
    }

    /// Gives KVM the routes of all pins.
    fn route(&self, routes: &[Route]) -> io::Result<()> {
        let table = ioapic::table(routes).ok_or(io::ErrorKind::OutOfMemory)?;
        let error = |error: kvm_ioctls::Error| io::Error::from_raw_os_error(error.errno());
        self.machine.set_gsi_routing(&table).map_err(error)
    }

    /// Sends all vCPUs a non-maskable interrupt.
    pub fn nmi(&self) {
        for (id, _) in (0u32..).zip(&self.vcpus) {
            self.signal(id, MSI_NMI);
        }
    }

    /// Sends an interrupt whose vector and vCPU the guest chose.
    pub fn send(&self, message: Message) {
        self.signal(message.vcpu(), message.vector().into());
    }

    fn signal(&self, vcpu: u32, data: u32) {
        let message = kvm_msi {
            address_lo: super::layout::APIC | vcpu << 12,
            data,
            ..Default::default()
        };
        // A vCPU that has not started gets none.
        let _ = self.machine.signal_msi(message);
    }

    /// Lets the vCPUs run.
    pub fn start(&self) {
        *self.started.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.start.notify_all();
    }

    /// Waits until the vCPUs may run, or the machine ends.
    pub fn wait_for_start(&self) {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        while !*started && !self.stopping() {
            started = self
                .start
                .wait(started)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The machine has ended. The first end is the one that is reported. No vCPU runs for long
    /// after that.
    pub fn finish(&self, end: End) {
        let first = !self.ended.swap(true, Ordering::SeqCst);
        // Before the end is reported: that may wait for room among the outputs.
        self.kick();
        if first {
            self.outputs.push(Output::End(end));
        }
    }

    /// Ends the machine because it cannot go on. The first reason stays.
    pub fn fail(&self, why: String) {
        self.finish(End::Failed(why));
    }

    /// Ends the machine as [`Core::fail`], in a thread whose policy admits no signals. vCPUs run
    /// until their next exit, or until the main thread has the news and stops them.
    pub fn fail_without_signal(&self, why: String) {
        if !self.ended.swap(true, Ordering::SeqCst) {
            self.outputs.push(Output::End(End::Failed(why)));
        }
    }

    /// Asks all threads to end.
    pub fn stop(&self) {
        self.end.ending.begin();
        self.wake_all();
    }

    /// Whether the threads are asked to end.
    pub fn stopping(&self) -> bool {
        self.end.ending.begun()
    }

    /// Whether vCPUs must not run any more.
    pub fn over(&self) -> bool {
        self.stopping() || self.ended.load(Ordering::SeqCst)
    }

    /// Interrupts the host's call in which a vCPU runs. One that is about to make the call is
    /// missed, so the caller repeats this.
    pub fn kick(&self) {
        for vcpu in &self.vcpus {
            let thread = vcpu.thread.load(Ordering::SeqCst);
            if thread != 0 {
                thread_signal::interrupt(std::process::id(), thread);
            }
        }
    }

    /// Wakes all threads, so that each looks whether there is something to do.
    pub fn wake_all(&self) {
        drop(self.started.lock().unwrap_or_else(PoisonError::into_inner));
        self.start.notify_all();
        self.kick();
        self.stops.ring();
        self.reactor.stop();
        self.bus.wake_all();
    }
}
