// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds the C and assembler parts with their makefiles, the agent for guests with cargo, and
//! packs the patches, files and configuration for Linux, and the applications of `bench apps`.
//!
//! The C parts have makefiles, not build-script code, so that the author of a layer needs no Rust.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

/// The folder of a makefile, the name of its output folder, and the files that it must make there.
const PARTS: [(&str, &str, &[&str]); 5] = [
    (
        "layers",
        "layers",
        &[
            "native.rom",
            "native-stats.rom",
            "kvm.rom",
            "process.elf",
            "process-stats.elf",
        ],
    ),
    ("guest/conformance", "conformance", &["conformance.elf"]),
    ("bench/micro", "micro", &["micro"]),
    ("bench/net", "net", &["net"]),
    ("bench/exits", "exits", &["exits"]),
];

fn main() {
    if let Err(message) = build() {
        // Cargo shows this: one line with the error, then make's output, and no backtrace of this
        // script.
        eprintln!("{message}");
        exit(1);
    }
}

fn build() -> Result<(), String> {
    let variable = |name: &str| env::var_os(name).ok_or(format!("cargo did not set {name}"));
    let manifest = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let root = manifest
        .parent()
        .ok_or("the blobs crate has no parent folder")?;
    let out = PathBuf::from(variable("OUT_DIR")?);

    for path in ["abi/include", "vbus/include", "vbus/guest"] {
        watch(&root.join(path));
    }
    for (source, name, files) in PARTS {
        let folder = root.join(source);
        watch(&folder);
        make(&folder, &out.join(name), files)?;
    }
    for path in ["agent", "Cargo.toml", "Cargo.lock"] {
        watch(&root.join(path));
    }
    agent(root, &out.join("agent"))?;
    pack_files(root, &out.join("files.rs"))?;
    // The compiler and its flags are inputs of the makefiles.
    for name in ["CC", "LD", "OBJCOPY", "CFLAGS"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    Ok(())
}

fn make(folder: &Path, out: &Path, files: &[&str]) -> Result<(), String> {
    fs::create_dir_all(out).map_err(|e| format!("cannot create {}: {e}", out.display()))?;
    let mut command = Command::new("make");
    command
        .arg("-C")
        .arg(folder)
        .arg(format!("OUT={}", out.display()));
    // Cargo's variables with these names have another meaning in a makefile.
    for name in ["TARGET", "HOST", "PROFILE", "OUT_DIR", "DEBUG", "OPT_LEVEL"] {
        command.env_remove(name);
    }
    // Take part in cargo's job server.
    if let Some(flags) = env::var_os("CARGO_MAKEFLAGS") {
        command.env("MAKEFLAGS", flags);
    }
    let output = command
        .output()
        .map_err(|e| format!("cannot run make ({e}): install the package make"))?;
    if !output.status.success() {
        return Err(format!(
            "make -C {} failed ({}):\n{}{}",
            folder.display(),
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    for file in files {
        if !out.join(file).is_file() {
            return Err(format!(
                "make -C {} succeeded but did not make {file}",
                folder.display()
            ));
        }
    }
    Ok(())
}

/// Builds the agent. It includes the C library, since a guest may have another one or none.
fn agent(root: &Path, out: &Path) -> Result<(), String> {
    const TARGET: &str = "x86_64-unknown-linux-gnu";
    let cargo = env::var_os("CARGO").ok_or("cargo did not set CARGO")?;
    let mut command = Command::new(cargo);
    command.current_dir(root);
    // With --target, the flags do not apply to build scripts and macros, which cannot be static.
    command.args([
        "build",
        "--quiet",
        "--locked",
        "--package",
        "paravane-agent",
        "--profile",
        "guest",
        "--target",
        TARGET,
    ]);
    // A folder of its own: the outer cargo holds the lock of the other one.
    command.arg("--target-dir").arg(out.join("target"));
    // The outer cargo's settings for compilers are for its own build, such as clippy's wrapper.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let ours = name.starts_with("CARGO_FEATURE_")
            || name.starts_with("CARGO_CFG_")
            || name.starts_with("CARGO_PKG_");
        if ours
            || [
                "RUSTC",
                "RUSTC_WRAPPER",
                "RUSTC_WORKSPACE_WRAPPER",
                "RUSTDOC",
                "TARGET",
                "HOST",
                "OUT_DIR",
            ]
            .contains(&name.as_str())
        {
            command.env_remove(&name);
        }
    }
    command.env_remove("CARGO_ENCODED_RUSTFLAGS");
    command.env(
        "RUSTFLAGS",
        "-Ctarget-feature=+crt-static -Crelocation-model=static",
    );
    let output = command
        .output()
        .map_err(|e| format!("cannot run cargo: {e}"))?;
    if !output.status.success() {
        return Err(format!(
            "building the agent failed:\n{}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let made = out.join("target").join(TARGET).join("guest/paravane-agent");
    let place = out.join("paravane-agent");
    fs::copy(&made, &place).map_err(|e| format!("cannot copy {}: {e}", made.display()))?;
    Ok(())
}

/// Makes cargo run this script again when a file below `folder` changes or is added.
fn watch(folder: &Path) {
    // For a folder, cargo checks the times of everything below it.
    println!("cargo:rerun-if-changed={}", folder.display());
}

/// Writes the files of `guest/linux` and `bench/apps` as lists of path and contents, sorted by
/// name.
fn pack_files(root: &Path, out: &Path) -> Result<(), String> {
    let linux = root.join("guest/linux");
    let (vmi, vbus) = ("arch/x86/vmi", "drivers/vbus");
    let mut overlay = files_below(&linux.join("overlay"))?;
    // Files that the port shares with other parts are elsewhere in this tree. In the kernel's tree
    // they are beside the port.
    for (from, folder, to) in [
        ("abi/include/paravane/vmi.h", vmi, "include/paravane/vmi.h"),
        ("guest/common/vmi_rom.c", vmi, "vmi_rom.c"),
        ("guest/common/vmi_rom.h", vmi, "vmi_rom.h"),
        ("vbus/guest/ioq.c", vbus, "ioq.c"),
        ("vbus/guest/signal.c", vbus, "signal.c"),
        (
            "vbus/include/paravane/vbus_layout.h",
            vbus,
            "include/paravane/vbus_layout.h",
        ),
        (
            "vbus/include/paravane/vbus_shm.h",
            vbus,
            "include/paravane/vbus_shm.h",
        ),
    ] {
        watch(&root.join(from));
        overlay.push((format!("{folder}/{to}"), root.join(from)));
    }
    overlay.sort();
    let mut text = String::new();
    for (name, doc, files) in [
        (
            "LINUX_OVERLAY",
            "Files to add to Linux's source: path in it, contents.",
            overlay,
        ),
        (
            "LINUX_PATCHES",
            "Patches to it, and `series`, which lists their order.",
            files_below(&linux.join("patches"))?,
        ),
        (
            "LINUX_CONFIG",
            "Fragments of its configuration. Those in `optional/` are used on request.",
            files_below(&linux.join("config"))?,
        ),
        (
            "BENCH_APPS",
            "Descriptions of applications for `paravane bench apps`: path, contents.",
            files_below(&root.join("bench/apps"))?,
        ),
    ] {
        text.push_str(&format!(
            "/// {doc}\npub static {name}: &[(&str, &[u8])] = &[\n"
        ));
        for (path, file) in files {
            text.push_str(&format!("    ({path:?}, include_bytes!({file:?})),\n"));
        }
        text.push_str("];\n\n");
    }
    watch(&linux);
    watch(&root.join("bench/apps"));
    fs::write(out, text).map_err(|e| format!("cannot write {}: {e}", out.display()))
}

/// The files below a folder: their relative paths and full paths.
fn files_below(folder: &Path) -> Result<Vec<(String, PathBuf)>, String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(at) = folders.pop() {
        let complain = |e| format!("cannot read {}: {e}", at.display());
        for entry in fs::read_dir(&at).map_err(complain)? {
            let path = entry.map_err(complain)?.path();
            if path.is_dir() {
                folders.push(path);
            } else if let Some(name) = path.strip_prefix(folder).ok().and_then(Path::to_str) {
                found.push((name.to_string(), path));
            }
        }
    }
    found.sort();
    Ok(found)
}
