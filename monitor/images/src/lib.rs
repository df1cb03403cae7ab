// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Root file systems: a Debian of one's own.
//!
//! Nothing here needs root. mmdebstrap fetches and unpacks the packages into a tar archive (with the user's namespaces where those are
//! allowed); where the caller is not root, `fakeroot` remembers owners and device nodes while the file system is made of it.

#![forbid(unsafe_code)]

mod apt;
mod debian;
pub mod oci;
pub mod unpack;

pub use debian::{Format, Request, build};
