// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The process hypervisor as a back end.

use super::layer_heuristics::LayerHeuristics;
use super::vm::{Config, Heuristics, Vm};
use crate::conversation::Conversation;
use crate::{Hypervisor, Machine, Running};
use paravane_devices::Model;
use paravane_devices::rng::Rng;
use paravane_user_io::worker::{self, Limit};
use std::sync::Arc;

/// The back end, and options that only this one has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Process {
    /// The number of address-space processes; as many as the host allows if `None`.
    pub spaces: Option<u32>,
    /// Debuggers may attach to the processes.
    pub debuggable: bool,
    /// The heuristics of the layer.
    pub heuristics: LayerHeuristics,
}

impl Hypervisor for Process {
    fn describe(&self) -> String {
        "process (host processes), isolation vm".to_string()
    }

    fn start(&self, machine: &Machine<'_>, limit: &Limit<'_>) -> anyhow::Result<Box<dyn Running>> {
        machine.guest.elf()?;
        let Process {
            spaces,
            debuggable,
            heuristics,
        } = *self;
        let (guest, command_line) = (Arc::clone(machine.guest), machine.command_line.clone());
        let devices = machine.devices;
        let (vcpus, memory) = (machine.cpus, u64::from(machine.memory_mib) << 20);
        // The layer must live as long as the program.
        let layer: &'static [u8] = match machine.layer {
            Some(bytes) => Box::leak(bytes.into()),
            None => paravane_blobs::PROCESS_LAYER,
        };
        let vm = worker::within(limit, "starter", move || {
            let config = Config {
                name: &guest.name,
                kernel: &guest.bytes,
                layer,
                command_line: &command_line,
                initrd: &[],
                vcpus,
                memory,
                spaces,
                debuggable,
                heuristics: Heuristics {
                    layer: heuristics,
                    // Tests ask about vCPUs that are on other CPUs, and must stay there.
                    cpu_turns: false,
                    disk_cpus: false,
                    ..Heuristics::default()
                },
            };
            let mut all = vec![Model::virtio(Rng::default())];
            all.extend(devices()?);
            Vm::start_with(&config, all)
        })?;
        let outputs = Arc::clone(vm.outputs());
        Ok(Box::new(Conversation::new(vm, outputs, |vm| {
            Some(vm.counters())
        })))
    }
}
