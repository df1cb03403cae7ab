// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Root file systems: Debian images, container images, and unpacking of archives.
//!
//! Nothing here needs root. mmdebstrap fetches and unpacks the packages into a tar archive, with
//! user namespaces where they are allowed. For an ordinary user, `fakeroot` keeps owners and device
//! nodes until the file system is made.

#![forbid(unsafe_code)]

mod apt;
mod debian;
mod kept;
pub mod oci;
pub mod unpack;

pub use debian::{Format, Request, build};
pub use kept::{Kept, keep, work};
