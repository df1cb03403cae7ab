// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds the C and assembler parts with the makefiles beside their sources.
//!
//! They are makefiles and not build-script code so that somebody who writes a layer needs no Rust to build one.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

/// A makefile's folder, the name of its output folder, and the files that it must make there.
const PARTS: [(&str, &str, &[&str]); 3] = [
    ("layers", "layers", &["native.rom", "native-stats.rom", "process.elf"]),
    ("guest/conformance", "conformance", &["conformance.elf"]),
    ("bench/micro", "micro", &["micro"]),
];

fn main() {
    if let Err(message) = build() {
        // One `error:` line for cargo to show, make's own words below it, and no backtrace of this script.
        eprintln!("{message}");
        exit(1);
    }
}

fn build() -> Result<(), String> {
    let variable = |name: &str| env::var_os(name).ok_or(format!("cargo did not set {name}"));
    let manifest = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let root = manifest.parent().ok_or("the blobs crate has no parent folder")?;
    let out = PathBuf::from(variable("OUT_DIR")?);

    watch(&root.join("abi/include"));
    for (source, name, files) in PARTS {
        let folder = root.join(source);
        watch(&folder);
        make(&folder, &out.join(name), files)?;
    }
    // The compiler and its flags are inputs of the makefiles.
    for name in ["CC", "LD", "OBJCOPY", "CFLAGS"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    Ok(())
}

fn make(folder: &Path, out: &Path, files: &[&str]) -> Result<(), String> {
    fs::create_dir_all(out).map_err(|e| format!("cannot create {}: {e}", out.display()))?;
    let mut command = Command::new("make");
    command.arg("-C").arg(folder).arg(format!("OUT={}", out.display()));
    // Cargo's own variables of that name mean something else to a makefile.
    for name in ["TARGET", "HOST", "PROFILE", "OUT_DIR", "DEBUG", "OPT_LEVEL"] {
        command.env_remove(name);
    }
    // Takes part in cargo's job server.
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

/// Has cargo run this again when a file below `folder` changes, or one is added.
fn watch(folder: &Path) {
    // For a folder, cargo looks at the times of everything below it.
    println!("cargo:rerun-if-changed={}", folder.display());
}
