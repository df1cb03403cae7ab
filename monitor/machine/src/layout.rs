// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the code of a running machine is: for programs that sample it from the outside.

use crate::vm::Vm;
use paravane_hypervisor::Layer;
use paravane_user_io::text::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Processes and programs of a machine. All of it is the monitor's own knowledge; none of it comes
/// from memory that the guest can write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// The number of vCPUs. Thread n of each process, in the order in which they were made, is for
    /// vCPU n.
    pub vcpus: usize,
    /// The address-space processes, by the host's ids. More may follow; none ends before the
    /// machine.
    pub processes: Vec<u32>,
    /// The kernel's load address minus its link address.
    pub kernel_delta: u64,
    /// The end of the guest's user range.
    pub user_end: u64,
    /// The build ID of the kernel's file when the machine was started.
    pub kernel_build_id: Option<String>,
    /// SHA-256 of the layer's program, in hexadecimal digits. It is loaded where it is linked.
    pub layer: String,
}

impl Layout {
    /// A machine's, now; `None` if its code does not run in processes.
    pub(crate) fn of(vm: &Vm, kernel_build_id: Option<&str>, layer: Layer) -> Option<Self> {
        let Vm::Process(vm) = vm else {
            return None;
        };
        let machine = vm.observer();
        Some(Layout {
            vcpus: machine.vcpus().len(),
            processes: machine.process_ids(),
            kernel_delta: vm.debug().delta,
            user_end: vm.debug().direct_map,
            kernel_build_id: kernel_build_id.map(String::from),
            layer: layer_id(layer)?,
        })
    }
}

/// SHA-256 of a layer's program in this build, if it is one of the process hypervisor.
pub fn layer_id(layer: Layer) -> Option<String> {
    layer.program().map(|program| hex(&Sha256::digest(program)))
}
