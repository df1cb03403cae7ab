// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data that every kernel gets at its start: a command line and an initial RAM disk.

use crate::ram::Ram;
use anyhow::bail;

/// Checks a command line. `most`: its bytes, without the zero byte at its end.
///
/// # Errors
/// It is too long, or has a zero byte.
pub fn check_command_line(line: &str, most: usize) -> anyhow::Result<()> {
    if line.len() > most {
        bail!(
            "the command line has {} bytes, the limit is {most}",
            line.len()
        );
    }
    if line.bytes().any(|byte| byte == 0) {
        bail!("the command line contains a zero byte");
    }
    Ok(())
}

/// Stores the initial RAM disk below `end`, in RAM that the kernel reaches at its start. The
/// kernel's memory ends at `kernel`. Returns the disk's guest-physical address; 0: there is none.
///
/// # Errors
/// It does not fit between the two.
pub fn initrd(ram: &Ram, end: u64, kernel: u64, bytes: &[u8]) -> anyhow::Result<u64> {
    if bytes.is_empty() {
        return Ok(0);
    }
    let gpa = end.saturating_sub(bytes.len() as u64) & !0xfff;
    if gpa < kernel {
        bail!(
            "the initial RAM disk has {} MiB: too much for {} MiB of memory: give the machine \
             more",
            bytes.len() >> 20,
            ram.size() >> 20
        );
    }
    ram.store(gpa, bytes)?;
    Ok(gpa)
}
