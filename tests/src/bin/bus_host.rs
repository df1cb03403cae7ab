// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `bus_host SOCKET BUS DEVICE STRAYS ADDRESS`: a host at 10.8.0.9 on a switch of a bus, which
//! answers ARP and pings until its standard input ends. First it sends as many STRAYS frames to an
//! Ethernet address, as `02:...`. It prints its own address, and for each line of its input the
//! frames that it has answered, those that it has got, and of these those from addresses of another
//! switch.

use paravane_vbus_client::{Client, Error, Options};
use std::io::{self, BufRead};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const HOST: [u8; 4] = [10, 8, 0, 9];
/// How long another vbusd may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of an address that all ports of a switch have.
const PREFIX: usize = 5;

/// Answered, got, from elsewhere.
type Counts = [AtomicU64; 3];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bus_host: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [socket, bus, device, strays, to] = &words[..] else {
        return Err("SOCKET BUS DEVICE STRAYS ADDRESS are needed".to_string());
    };
    let options = Options {
        socket: socket.into(),
        bus: bus.clone(),
        device: device.clone(),
        count: 64,
        buffer: 2048,
    };
    let mut client = Client::connect(options).map_err(|error| error.to_string())?;
    let mac = client.mac().ok_or("the device has no address")?;
    let strays: u32 = strays.parse().map_err(|_| "STRAYS is no number")?;
    for _ in 0..strays {
        let frame = [&parse(to)?[..], &mac, &[8, 0], &[0; 46]].concat();
        let sent = client.send(&frame).map_err(|error| error.to_string())?;
        if !sent {
            return Err("there is no room for STRAYS".to_string());
        }
    }
    println!("{}", mac.map(|byte| format!("{byte:02x}")).join(":"));
    let counts = Arc::<Counts>::default();
    let shared = Arc::clone(&counts);
    thread::spawn(move || {
        if let Err(error) = serve(&mut client, &shared) {
            eprintln!("bus_host: {error}");
            std::process::exit(1);
        }
    });
    for line in io::stdin().lock().lines() {
        line.map_err(|error| error.to_string())?;
        let [answered, got, strange] = &*counts;
        let [a, b, c] = [answered, got, strange].map(|count| count.load(Ordering::SeqCst));
        println!("{a} {b} {c}");
    }
    Ok(())
}

fn parse(text: &str) -> Result<[u8; 6], String> {
    let bytes = text.split(':').map(|part| u8::from_str_radix(part, 16));
    let bytes: Vec<u8> = bytes
        .collect::<Result<_, _>>()
        .map_err(|_| format!("{text} is no address"))?;
    bytes
        .try_into()
        .map_err(|_| format!("{text} is no address"))
}

/// Answers until there is no vbusd any more.
fn serve(client: &mut Client, counts: &Counts) -> Result<(), Error> {
    let [answered, got, strange] = counts;
    let mut frame = [0; 2048];
    loop {
        let received = client.wait(None, false).and_then(|_| {
            // A client that only waits still takes its events.
            while client.event()?.is_some() {}
            client.receive(&mut frame)
        });
        let received = match received {
            Ok(received) => received,
            Err(Error::Lost(_)) => {
                client.reconnect(PATIENCE)?;
                continue;
            }
            Err(error) => return Err(error),
        };
        let (Some(length), Some(mac)) = (received, client.mac()) else {
            continue;
        };
        let frame = frame.get(..length).unwrap_or_default();
        got.fetch_add(1, Ordering::SeqCst);
        let own = frame.get(6..6 + PREFIX) == mac.get(..PREFIX);
        strange.fetch_add(u64::from(!own), Ordering::SeqCst);
        if let Some(answer) = answer(frame, mac) {
            let sent = client.send(&answer)?;
            answered.fetch_add(u64::from(sent), Ordering::SeqCst);
        }
    }
}

/// The answer of a host that knows ARP and ping.
fn answer(frame: &[u8], mac: [u8; 6]) -> Option<Vec<u8>> {
    let at = |from: usize, to: usize| frame.get(from..to);
    let mut answer = frame.to_vec();
    let mut put = |place: usize, bytes: &[u8]| -> Option<()> {
        let place = answer.get_mut(place..place.checked_add(bytes.len())?)?;
        place.copy_from_slice(bytes);
        Some(())
    };
    put(0, at(6, 12)?)?;
    put(6, &mac)?;
    match at(12, 14)? {
        // A request for the address of 10.8.0.9: sender and target change places.
        [8, 6] if at(20, 22)? == [0, 1] && at(38, 42)? == HOST => {
            put(20, &[0, 2])?;
            put(32, at(22, 32)?)?;
            put(22, &mac)?;
            put(28, &HOST)?;
        }
        // ICMP, a request for an echo.
        [8, 0] if at(23, 24)? == [1] && at(30, 34)? == HOST && at(34, 35)? == [8] => {
            put(26, at(30, 34)?)?;
            put(30, at(26, 30)?)?;
            put(34, &[0])?;
            // The checksum loses what the type does.
            let sum: [u8; 2] = at(36, 38)?.try_into().ok()?;
            let sum = u32::from(u16::from_be_bytes(sum)) + 0x800;
            let sum = (sum & 0xffff) + (sum >> 16);
            put(36, &u16::try_from(sum).ok()?.to_be_bytes())?;
        }
        _ => return None,
    }
    Some(answer)
}
