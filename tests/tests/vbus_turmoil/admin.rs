// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An administrator's requests to vbusd in the turmoil.

use paravane_tests::vbusd::Vbusd;
use paravane_vbus_client::bus::Name;
use paravane_vbus_client::protocol::Request;
use paravane_vbus_client::{Client, Control, Options};

/// A connection to vbusd.
pub struct Admin(Control);

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

impl Admin {
    pub fn of(vbusd: &Vbusd) -> Self {
        Admin(Control::connect(&vbusd.socket()).unwrap())
    }

    fn ask(&mut self, request: &Request) {
        self.0.ask(request).unwrap();
    }

    pub fn link(&mut self, bus: &str, device: &str) {
        let (bus, device) = (name(bus), name(device));
        self.ask(&Request::Link { bus, device });
    }

    pub fn unlink(&mut self, bus: &str, device: &str) {
        let (bus, device) = (name(bus), name(device));
        self.ask(&Request::Unlink { bus, device });
    }

    pub fn reset(&mut self, device: &str) {
        let device = name(device);
        self.ask(&Request::Reset { device });
    }

    /// A device comes and goes for good.
    pub fn extra(&mut self, bus: &str, device: &str) {
        self.ask(&Request::CreateDevice {
            device: name(device),
            class: "echo".to_string(),
            attributes: vec![],
        });
        self.link(bus, device);
        self.unlink(bus, device);
        let device = name(device);
        self.ask(&Request::RemoveDevice { device });
    }
}

/// A client that sends broadcasts and leaves without closing its connection.
pub fn client_comes_and_goes(vbusd: &Vbusd, bus: &str, device: &str) {
    let client = Client::connect(Options {
        socket: vbusd.socket(),
        bus: bus.to_string(),
        device: device.to_string(),
        count: 64,
        buffer: 2048,
    });
    let mut client = client.unwrap();
    let mut frame = [0xff; 64];
    frame[6..12].copy_from_slice(&client.mac().unwrap());
    for _ in 0..100 {
        client.send(&frame).unwrap();
    }
}
