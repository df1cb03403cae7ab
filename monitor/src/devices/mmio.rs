// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Registers of virtio over MMIO (virtio 1.2, section 4.2), version 2.

/// Bytes of a device's register page.
pub const PAGE: usize = 4096;
/// Offset of the configuration space.
pub const CONFIG: usize = 0x100;
/// Bytes that a configuration space can have.
pub const CONFIG_MAX: usize = PAGE - CONFIG;
