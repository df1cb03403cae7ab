// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//! Compiles the C files as a guest's kernel would: freestanding, with all warnings as errors; and a
//! copy of them for each fault.
#![allow(clippy::expect_used)] // A panic fails the build.

mod faults;

use faults::{FAULTS, Fault};
use std::path::{Path, PathBuf};
use std::{env, fs};

const FILES: [&str; 2] = ["signal.c", "ioq.c"];
/// The functions, in the order of `Code` in `src/lib.rs`.
const FUNCTIONS: [&str; 9] = [
    "vbus_north_begin",
    "vbus_north_post",
    "vbus_north_take",
    "vbus_side_inject",
    "vbus_side_enable",
    "vbus_side_disable",
    "vbus_side_look",
    "vbus_side_rest",
    "vbus_side_wake_up",
];

fn main() {
    for path in ["../include", "build.rs", "faults.rs"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("OUT_DIR"));
    compiler().files(FILES).compile("vbus_guest");
    let mut codes = code(|function| function.to_string());
    for fault in FAULTS {
        let renamed = |function: &str| format!("{function}_{}", fault.name);
        let mut compiler = compiler();
        for function in FUNCTIONS {
            compiler.define(function, renamed(function).as_str());
        }
        compiler.files(copies(fault, &out));
        compiler.compile(&format!("vbus_guest_{}", fault.name));
        codes += &code(renamed);
    }
    fs::write(out.join("codes.rs"), format!("&[{codes}]")).expect("codes.rs");
}

fn compiler() -> cc::Build {
    let mut compiler = cc::Build::new();
    compiler
        .include("../include")
        .std("c11")
        .flags(["-ffreestanding", "-nostdlib", "-Wall", "-Wextra", "-Werror"])
        .opt_level(2);
    compiler
}

/// Rust's part of the functions with these names.
fn code(name: impl Fn(&str) -> String) -> String {
    let names = FUNCTIONS.map(name).join(" ");
    format!("code!({names}),\n")
}

/// Makes copies of the C files, with a fault in one of them.
fn copies(fault: &Fault, out: &Path) -> [PathBuf; 2] {
    let mut texts = FILES.map(|file| {
        println!("cargo::rerun-if-changed={file}");
        fs::read_to_string(file).expect(file)
    });
    for (old, _) in fault.edits {
        let found: usize = texts.iter().map(|text| text.matches(old).count()).sum();
        assert_eq!(found, 1, "{}: places of {old:?} in the C files", fault.name);
    }
    for text in &mut texts {
        // From the last one on: what an edit puts there is no place of another.
        for (old, new) in fault.edits.iter().rev() {
            *text = text.replace(old, new);
        }
    }
    let folder = out.join(fault.name);
    fs::create_dir_all(&folder).expect("a folder for a copy");
    let mut texts = texts.into_iter();
    FILES.map(|file| {
        let path = folder.join(file);
        fs::write(&path, texts.next().unwrap_or_default()).expect("a copy");
        path
    })
}
