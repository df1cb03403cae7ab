// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A vCPU's thread: runs guest code and serves its exits.

use super::core::Core;
use super::layout::{BUS_CALL, IOAPIC, IOAPIC_SIZE};
use crate::output::End;
use kvm_ioctls::{VcpuExit, VcpuFd};
use std::sync::atomic::Ordering;

/// What follows an exit.
enum Next {
    Go,
    End(End),
    /// KVM cannot go on.
    Broken(&'static str),
}

/// Runs the vCPU until the machine ends.
pub fn run(core: &Core, number: usize, mut vcpu: VcpuFd) {
    let Some(shared) = core.vcpus.get(number) else {
        return;
    };
    shared.enter();
    core.wait_for_start();
    let over = || core.over();
    while !over() {
        if let Err(error) = core.stops.pause(number, &mut vcpu, over) {
            core.fail(format!(
                "vCPU {number}: cannot stop for the debugger: {error}"
            ));
            break;
        }
        if over() {
            break;
        }
        let next = match vcpu.run() {
            Ok(VcpuExit::Debug(why)) => match core.stops.trap(number, &mut vcpu, why, over) {
                Ok(()) => Next::Go,
                Err(_) => Next::Broken("it cannot stop for the debugger"),
            },
            Ok(VcpuExit::IoOut(BUS_CALL, _)) => call_bus(core, &vcpu),
            Ok(exit) => serve(core, exit),
            Err(error) => match error.errno() {
                // A kick; a vCPU that has not got its STARTUP interrupt.
                libc::EINTR | libc::EAGAIN => Next::Go,
                _ => {
                    core.fail(format!("vCPU {number}: the host's KVM fails: {error}"));
                    break;
                }
            },
        };
        shared.exits.fetch_add(1, Ordering::Relaxed);
        match next {
            Next::Go => {}
            Next::End(end) => core.finish(end),
            Next::Broken(what) => core.fail(format!("vCPU {number}: {what}{}", place(&vcpu))),
        }
    }
    shared.leave();
}

/// The call `bus.command` of a layer (`layers/kvm/bus.c`): an `out` whose arguments are in rbx and
/// rcx, and whose result is in rax. Each such `out` gets an answer.
fn call_bus(core: &Core, vcpu: &VcpuFd) -> Next {
    let Ok(mut registers) = vcpu.get_regs() else {
        return Next::Broken("its registers cannot be read");
    };
    let (bridge, command) = (registers.rbx, registers.rcx);
    let answer = core.bus.command(bridge, command, || core.over());
    registers.rax = i64::from(answer) as u64;
    if core.over() || vcpu.set_regs(&registers).is_ok() {
        Next::Go
    } else {
        Next::Broken("its registers cannot be written")
    }
}

fn serve(core: &Core, exit: VcpuExit<'_>) -> Next {
    match exit {
        VcpuExit::IoOut(port, bytes) if core.bus.kick(port, bytes) => Next::Go,
        VcpuExit::IoOut(port, bytes) => match core.ports.write(port, bytes) {
            Some(end) => Next::End(end),
            None => Next::Go,
        },
        VcpuExit::IoIn(port, bytes) => {
            core.ports.read(port, bytes);
            Next::Go
        }
        VcpuExit::MmioRead(address, bytes) => {
            load(core, address, bytes);
            Next::Go
        }
        VcpuExit::MmioWrite(address, bytes) => store(core, address, bytes),
        // An end of an interrupt by level, of which there are none; an interrupted run.
        VcpuExit::IoapicEoi(_) | VcpuExit::Intr | VcpuExit::IrqWindowOpen | VcpuExit::Hlt => {
            Next::Go
        }
        VcpuExit::Shutdown => Next::Broken("a triple fault"),
        VcpuExit::InternalError => Next::Broken("the host's KVM cannot emulate an instruction"),
        VcpuExit::FailEntry(..) => Next::Broken("the processor refuses to enter the guest"),
        VcpuExit::MemoryFault { .. } => Next::Broken("the host cannot give memory"),
        _ => Next::Broken("an exit that the host's KVM should not make"),
    }
}

fn load(core: &Core, address: u64, bytes: &mut [u8]) {
    bytes.fill(0xff);
    if let Some(offset) = ioapic_offset(address) {
        let value = core.ioapic.read(offset).to_le_bytes();
        bytes
            .iter_mut()
            .zip(value)
            .for_each(|(to, from)| *to = from);
    }
}

fn store(core: &Core, address: u64, bytes: &[u8]) -> Next {
    let Some(offset) = ioapic_offset(address) else {
        core.bus.store(address, bytes, || core.over());
        return Next::Go;
    };
    // Its registers have four bytes.
    let Some(&value) = bytes.first_chunk() else {
        return Next::Go;
    };
    let value = u32::from_le_bytes(value);
    match core.write_ioapic(offset, value) {
        Ok(()) => Next::Go,
        Err(error) => Next::End(End::Failed(format!("cannot route an interrupt: {error}"))),
    }
}

fn ioapic_offset(address: u64) -> Option<u64> {
    let offset = address.checked_sub(IOAPIC)?;
    (offset < IOAPIC_SIZE).then_some(offset)
}

/// Where the vCPU is, for a message.
fn place(vcpu: &VcpuFd) -> String {
    vcpu.get_regs().map_or_else(
        |_| String::new(),
        |registers| format!(" at rip {:#x}, rsp {:#x}", registers.rip, registers.rsp),
    )
}
