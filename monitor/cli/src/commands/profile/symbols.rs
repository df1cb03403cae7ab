// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions of a machine's kernel and layer.

use anyhow::{Context, bail};
use paravane_hypervisor::Layer;
use paravane_machine::control::{Request, ask};
use paravane_machine::layout::{Layout, layer_id};
use paravane_machine::store::Machine;
use paravane_profile::{Book, Books};
use paravane_vmlinux::elf;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Largest size of a kernel's file, in bytes. With debug information it is a few hundred MiB.
const MAX_KERNEL: usize = 4 << 30;
/// Bytes that are read at a time.
const PIECE: usize = 1 << 20;

/// The functions, as far as their programs are known for sure. `notes` gets a line for each that is
/// missing.
pub fn read(machine: &Machine, layout: &Layout, notes: &mut Vec<String>) -> Books {
    let guest_kernel = kernel(machine, layout)
        .map_err(|why| notes.push(format!("no functions of the guest's kernel: {why:#}")));
    let layer =
        layer(layout).map_err(|why| notes.push(format!("no functions of the layer: {why:#}")));
    Books {
        guest_kernel: guest_kernel.ok(),
        layer: layer.ok(),
        host_kernel: None,
        user_end: layout.user_end,
    }
}

/// The monitor has its kernel's file open: it is the right one even if its name was removed or now
/// belongs to another kernel.
fn kernel(machine: &Machine, layout: &Layout) -> anyhow::Result<Book> {
    let Some(file) = ask(machine, &Request::Kernel)? else {
        bail!("the monitor gave no file");
    };
    let bytes = contents(&File::from(file)).context("its file")?;
    check(
        layout.kernel_build_id.as_deref(),
        elf::build_id_of(&bytes)?.as_deref(),
    )?;
    Book::read(&bytes, layout.kernel_delta)
}

/// Whether a file with this build ID is the kernel that was started.
fn check(started: Option<&str>, file: Option<&str>) -> anyhow::Result<()> {
    match (started, file) {
        (Some(started), Some(file)) if started == file => Ok(()),
        (None, _) => bail!("its file has no build ID"),
        _ => bail!("its file has been overwritten since the machine's start"),
    }
}

/// The contents. The file's position is the monitor's and stays where it is.
fn contents(file: &File) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let at = bytes.len();
        if at >= MAX_KERNEL {
            bail!("it is larger than {MAX_KERNEL} bytes");
        }
        bytes.resize(at + PIECE, 0);
        let piece = bytes.get_mut(at..).unwrap_or_default();
        let length = file.read_at(piece, at.try_into()?)?;
        bytes.truncate(at + length);
        if length == 0 {
            return Ok(bytes);
        }
    }
}

/// The layer is part of the monitor's program, which may be another build than this one.
fn layer(layout: &Layout) -> anyhow::Result<Book> {
    let same = |layer: &Layer| layer_id(*layer).is_some_and(|id| id == layout.layer);
    let layer = [Layer::Process, Layer::ProcessStats].into_iter().find(same);
    match layer.and_then(Layer::program) {
        Some(program) => Book::read(program, 0),
        None => bail!("the machine was started by another build of paravane"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};

    #[test]
    fn only_the_kernel_that_was_started_fits() {
        assert!(check(Some("ab"), Some("ab")).is_ok());
        for (started, file) in [(Some("ab"), Some("cd")), (Some("ab"), None), (None, None)] {
            assert!(check(started, file).is_err(), "{started:?} {file:?}");
        }
    }

    #[test]
    fn the_position_of_the_file_stays() {
        let mut file = tempfile::tempfile().unwrap();
        let text: Vec<u8> = (0..=250u8).cycle().take(PIECE + 5).collect();
        file.write_all(&text).unwrap();
        file.rewind().unwrap();
        let mut first = [0; 3];
        file.read_exact(&mut first).unwrap();
        assert_eq!(contents(&file).unwrap(), text);
        assert_eq!(file.stream_position().unwrap(), 3);
    }

    #[test]
    fn the_layer_of_this_build_has_functions() {
        let mut layout = Layout {
            vcpus: 1,
            processes: vec![],
            kernel_delta: 0,
            user_end: 0,
            kernel_build_id: None,
            layer: layer_id(Layer::ProcessStats).unwrap(),
        };
        assert!(layer(&layout).is_ok());
        layout.layer = layer_id(Layer::Process).unwrap();
        let book = layer(&layout).unwrap();
        let base = paravane_abi::process::PHV_LAYER_BASE;
        let names: Vec<&str> = (base..base + 0x20000)
            .filter_map(|address| book.find(address))
            .map(|number| book.name(number))
            .collect();
        assert!(names.contains(&"ph_host_call") && names.contains(&"process_mmu_set_cr3"));
        layout.layer = "another".to_string();
        assert!(layer(&layout).is_err());
    }
}
