// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gdb_client SECONDS PATH WORD...`: a debugger that sends each word as a packet to the machine
//! whose `--gdb` is the socket PATH, and prints each answer in a line. The word `interrupt`
//! interrupts the machine, `run` lets it run for a second, without an answer. An answer that does
//! not come within SECONDS is an error.

use paravane_tests::gdb::Client;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gdb_client: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let patience = words.next().ok_or("no time")?.parse()?;
    let path = words.next().ok_or("no path")?;
    let mut client = Client::connect(Path::new(&path), Duration::from_secs(patience))?;
    for word in words {
        match word.as_str() {
            "run" => {
                client.send("vCont;c")?;
                sleep(Duration::from_secs(1));
                continue;
            }
            "interrupt" => client.interrupt()?,
            packet => client.send(packet)?,
        }
        let answer = client.receive().map_err(|why| format!("{word}: {why}"))?;
        println!("{answer}");
    }
    Ok(())
}
