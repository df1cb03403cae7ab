// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds the C and assembler parts with the makefiles beside their sources, and the agent for guests with cargo.
//!
//! The former are makefiles and not build-script code so that somebody who writes a layer needs no Rust to build one.

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
    for path in ["agent", "Cargo.toml", "Cargo.lock"] {
        watch(&root.join(path));
    }
    agent(root, &out.join("agent"))?;
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

/// Builds the agent: with the C library inside, since a guest has another one or none.
fn agent(root: &Path, out: &Path) -> Result<(), String> {
    const TARGET: &str = "x86_64-unknown-linux-gnu";
    let cargo = env::var_os("CARGO").ok_or("cargo did not set CARGO")?;
    let mut command = Command::new(cargo);
    command.current_dir(root);
    // With --target, the flags are not for build scripts and macros, which cannot be linked statically.
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
    // What the outer cargo says to compilers is for its own build: clippy runs as a wrapper, for one.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let ours =
            name.starts_with("CARGO_FEATURE_") || name.starts_with("CARGO_CFG_") || name.starts_with("CARGO_PKG_");
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
    command.env("RUSTFLAGS", "-Ctarget-feature=+crt-static -Crelocation-model=static");
    let output = command.output().map_err(|e| format!("cannot run cargo: {e}"))?;
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

/// Has cargo run this again when a file below `folder` changes, or one is added.
fn watch(folder: &Path) {
    // For a folder, cargo looks at the times of everything below it.
    println!("cargo:rerun-if-changed={}", folder.display());
}
