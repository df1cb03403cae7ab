// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine of either back end, as the rest of the run sees it.

use paravane_hypervisor::DeviceFigures;
use paravane_hypervisor::process::VcpuFigures;
use paravane_hypervisor::process::debug::Debug;
use paravane_hypervisor::{Output, kvm, process};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A machine. Dropping it ends the machine.
#[derive(Debug)]
pub enum Vm {
    /// Of processes.
    Process(Box<process::Vm>),
    /// On KVM.
    Kvm(kvm::Vm),
}

/// Read access to a machine's statistics.
#[derive(Clone, Debug)]
pub enum Observer {
    /// Of a machine of processes.
    Process(process::Observer),
    /// Of a machine on KVM.
    Kvm(kvm::Observer),
}

impl Vm {
    /// Lets the guest's kernel run.
    pub fn start_kernel(&self) {
        match self {
            Vm::Process(vm) => vm.start_kernel(),
            Vm::Kvm(vm) => vm.start_kernel(),
        }
    }

    /// The next output, if there is any.
    pub fn next(&self) -> Option<Output> {
        match self {
            Vm::Process(vm) => vm.next(),
            Vm::Kvm(vm) => vm.next(),
        }
    }

    /// Becomes readable when there is output.
    pub fn bell(&self) -> BorrowedFd<'_> {
        match self {
            Vm::Process(vm) => vm.bell(),
            Vm::Kvm(vm) => vm.bell(),
        }
    }

    /// Sends all vCPUs a non-maskable interrupt. A kernel then reports what it was doing.
    pub fn nmi(&self) {
        match self {
            Vm::Process(vm) => vm.nmi(),
            Vm::Kvm(vm) => vm.nmi(),
        }
    }

    /// Access to its vCPUs and memory, if its back end has that.
    pub fn debug(&self) -> Option<&Debug> {
        match self {
            Vm::Process(vm) => Some(vm.debug()),
            Vm::Kvm(_) => None,
        }
    }

    /// Sets the exit code that a debugger gets.
    pub fn set_exit_code(&self, code: u8) {
        match self {
            Vm::Process(vm) => vm.set_exit_code(code),
            Vm::Kvm(vm) => vm.set_exit_code(code),
        }
    }

    /// Read access to its statistics, which can be given to another thread.
    pub fn observer(&self) -> Observer {
        match self {
            Vm::Process(vm) => Observer::Process(vm.observer()),
            Vm::Kvm(vm) => Observer::Kvm(vm.observer()),
        }
    }

    /// What keeps the signals of its processes inside the machine, if it has processes.
    pub fn signals(&self) -> Option<&'static str> {
        match self {
            Vm::Process(vm) => Some(vm.signal_scope().word()),
            Vm::Kvm(_) => None,
        }
    }
}

impl Observer {
    /// The time since the machine was prepared.
    pub fn uptime(&self) -> Duration {
        match self {
            Observer::Process(observer) => observer.uptime(),
            Observer::Kvm(observer) => observer.uptime(),
        }
    }

    /// Guest memory in bytes.
    pub fn memory(&self) -> u64 {
        match self {
            Observer::Process(observer) => observer.memory(),
            Observer::Kvm(observer) => observer.memory(),
        }
    }

    /// The number of address-space processes.
    pub fn processes(&self) -> usize {
        match self {
            Observer::Process(observer) => observer.processes(),
            Observer::Kvm(_) => 0,
        }
    }

    /// What each vCPU has done. On KVM only its exits to the monitor are known.
    pub fn vcpus(&self) -> Vec<VcpuFigures> {
        match self {
            Observer::Process(observer) => observer.vcpus(),
            Observer::Kvm(observer) => {
                let figures = |to_monitor| VcpuFigures {
                    to_monitor,
                    ..VcpuFigures::default()
                };
                observer.exits().into_iter().map(figures).collect()
            }
        }
    }

    /// The devices and what they have counted, in the guest's order.
    pub fn devices(&self) -> Vec<DeviceFigures> {
        match self {
            Observer::Process(observer) => observer.devices(),
            Observer::Kvm(observer) => observer.devices(),
        }
    }

    /// Sets an attribute of all devices that have it. Returns how many these are.
    pub fn set(&self, attribute: &str, microseconds: u32) -> usize {
        match self {
            Observer::Process(observer) => observer.set(attribute, microseconds),
            Observer::Kvm(observer) => observer.set(attribute, microseconds),
        }
    }
}
