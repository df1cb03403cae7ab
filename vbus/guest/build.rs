// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//! Compiles the C files as a guest's kernel would: freestanding, with all warnings as errors.

fn main() {
    println!("cargo::rerun-if-changed=../include");
    cc::Build::new()
        .files(["signal.c", "ioq.c"])
        .include("../include")
        .std("c11")
        .flags(["-ffreestanding", "-nostdlib", "-Wall", "-Wextra", "-Werror"])
        .opt_level(2)
        .compile("vbus_guest");
}
