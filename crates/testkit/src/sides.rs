//! Two network namespaces with a cable between them that can be cut.
//!
//! Each side is a namespace with an address; both are plugged into a switch, which is a bridge in a third. Cut, the switch
//! forwards nothing between them, and nobody is told: what is sent is lost, as by a cable that was pulled. Names are
//! unique and nothing is made in the namespace of the machine, so runs do not meet.

use std::{
    fs::File,
    net::Ipv4Addr,
    os::fd::AsFd,
    process::{self, Command},
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Where the two sides are. Namespaces share nothing, so every pair has the same addresses.
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2)];

/// The ports of the switch.
const PORTS: [&str; 2] = ["left", "right"];

/// Two sides of a network. The namespaces are removed on drop; end what runs in them before.
#[derive(Debug)]
pub struct TwoSides {
    sides: [String; 2],
    switch: String,
}

impl TwoSides {
    /// Makes both sides and joins them. Says which command was refused, and how, where that is not permitted.
    pub fn new() -> Result<TwoSides, String> {
        static MADE: AtomicU32 = AtomicU32::new(0);

        let name = format!("tollgate-{}-{}", process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let sides = ["a", "b"].map(|side| format!("{name}-{side}"));
        // Made first, so that what was made before a refusal is removed.
        let network = TwoSides { sides, switch: format!("{name}-switch") };
        network.make()?;
        Ok(network)
    }

    /// The name and the address of each side.
    pub fn sides(&self) -> [(&str, Ipv4Addr); 2] {
        let [left, right] = &self.sides;
        [(left, ADDRESSES[0]), (right, ADDRESSES[1])]
    }

    /// Cuts the cable.
    pub fn cut(&self) {
        self.switch_port("down");
    }

    /// Mends it.
    pub fn mend(&self) {
        self.switch_port("up");
    }

    fn make(&self) -> Result<(), String> {
        for name in self.names() {
            ip(&["netns", "add", name])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        let switch = self.switch.as_str();
        ip(&["-n", switch, "link", "add", "switch", "type", "bridge"])?;
        ip(&["-n", switch, "link", "set", "switch", "up"])?;
        for ((side, port), address) in self.sides.iter().zip(PORTS).zip(ADDRESSES) {
            let cable = ["netns", side, "type", "veth", "peer", "name", port, "netns", switch];
            ip(&[&["link", "add", "cable"][..], &cable].concat())?;
            ip(&["-n", switch, "link", "set", port, "master", "switch", "up"])?;
            ip(&["-n", side, "address", "add", &format!("{address}/24"), "dev", "cable"])?;
            ip(&["-n", side, "link", "set", "cable", "up"])?;
        }
        Ok(())
    }

    fn switch_port(&self, state: &str) {
        ip(&["-n", &self.switch, "link", "set", PORTS[0], state]).unwrap_or_else(|error| panic!("{error}"));
    }

    fn names(&self) -> [&str; 3] {
        [&self.sides[0], &self.sides[1], &self.switch]
    }
}

impl Drop for TwoSides {
    fn drop(&mut self) {
        for name in self.names() {
            // One that was never made cannot be removed; the refusal to make it has been told.
            let _ = ip(&["netns", "delete", name]);
        }
    }
}

/// Moves this thread into a namespace: what it connects to from now on, it reaches from there. For a thread of the
/// caller's own: it cannot come back.
pub fn enter_namespace(name: &str) {
    let file = File::open(format!("/run/netns/{name}")).expect("`ip netns` keeps its namespaces there");
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
        .unwrap_or_else(|error| panic!("cannot enter {name}: {error}"));
}

fn ip(words: &[&str]) -> Result<(), String> {
    let line = || format!("`ip {}`", words.join(" "));
    let output = Command::new("ip").args(words).output().map_err(|error| format!("{}: {error}", line()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}: {}", line(), String::from_utf8_lossy(&output.stderr).trim()))
}
