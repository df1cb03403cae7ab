// SPDX-License-Identifier: Apache-2.0 OR MIT
//! KVM as a back end for conformance guests.

use super::host;
use super::speed;
use super::vm::{Config, Vm};
use crate::conversation::Conversation;
use crate::{Hypervisor, Machine, Running};
use paravane_user_io::worker::{self, Limit};
use std::sync::Arc;

/// The back end.
#[derive(Clone, Copy, Debug)]
pub struct KvmHost {
    emulated: bool,
}

impl KvmHost {
    /// Checks that the host's KVM can be used, and how.
    ///
    /// # Errors
    /// Why not.
    pub fn find() -> anyhow::Result<Self> {
        host::open()?;
        let emulated = speed::measure()?.emulated();
        Ok(KvmHost { emulated })
    }
}

impl Hypervisor for KvmHost {
    fn describe(&self) -> String {
        "kvm (/dev/kvm)".to_string()
    }

    fn start(&self, machine: &Machine<'_>, limit: &Limit<'_>) -> anyhow::Result<Box<dyn Running>> {
        let (guest, command_line) = (Arc::clone(machine.guest), machine.command_line.clone());
        let (vcpus, memory) = (machine.cpus, u64::from(machine.memory_mib) << 20);
        let layer = machine.layer.map(<[u8]>::to_vec);
        let (emulated, devices) = (self.emulated, machine.devices);
        let vm = worker::within(limit, "starter", move || {
            let config = Config {
                name: &guest.name,
                kernel: &guest.bytes,
                layer: layer.as_deref(),
                command_line: &command_line,
                initrd: &[],
                vcpus,
                memory,
                tests: true,
                large_pages: true,
                emulated,
            };
            let vm = Vm::prepare(&config, devices()?)?;
            vm.start_kernel();
            Ok(vm)
        })?;
        let outputs = Arc::clone(vm.outputs());
        Ok(Box::new(Conversation::new(vm, outputs, |_| None)))
    }
}
