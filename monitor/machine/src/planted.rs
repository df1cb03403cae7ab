// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What tests plant in a machine: another layer than the program's own.

use std::sync::OnceLock;

static LAYER: OnceLock<Vec<u8>> = OnceLock::new();

/// Machines of processes get this program as their layer from now on. The first call counts.
pub fn plant_layer(program: Vec<u8>) {
    let _ = LAYER.set(program);
}

/// The layer that was planted.
pub(crate) fn layer() -> Option<&'static [u8]> {
    LAYER.get().map(Vec::as_slice)
}
