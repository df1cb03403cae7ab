// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What comes from a machine of the monitor's own back ends.

/// How a machine ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The guest asked for it, with this exit code.
    Shutdown(u8),
    /// The guest asked for a restart, with this value of `VMI_REBOOT_*`.
    Reboot(u32),
    /// The machine could not go on.
    Failed(String),
}

/// What comes from a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Bytes of the console, as the guest wrote them.
    Console(Vec<u8>),
    /// The last output.
    End(End),
}
