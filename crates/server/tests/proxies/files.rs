//! The files of `docs/forward-auth`, as users copy them, with the places of a test in them.
//!
//! Nothing else is changed, so that what is tested is what is documented, and a place that is no longer
//! where it was fails the test.

use std::net::SocketAddr;
use std::path::Path;

use testkit::{FrontPlaces, FrontProgram, unique_prefix};

/// Where the proxy is to find what it needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Behind {
    pub(crate) tollgate: SocketAddr,
    pub(crate) application: SocketAddr,
}

/// What a proxy is to do while Tollgate is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Away {
    /// As the file stands: nobody passes. A test that counts through it must not take a busy machine for
    /// an outage, so here the proxy waits for Tollgate as long as it takes.
    Closed,
    /// The file's other choice: everybody passes, as soon as the file's own timeout says so.
    Open,
}

const PATIENTLY: &str = "30s";

/// The configuration of one program: its files by their names.
pub(crate) fn configuration(
    program: FrontProgram,
    away: Away,
    behind: Behind,
    places: &FrontPlaces<'_>,
) -> Vec<(&'static str, String)> {
    let mut files = match program {
        FrontProgram::Nginx => nginx(away, places),
        FrontProgram::HaProxy => haproxy(away, places),
        FrontProgram::Traefik => traefik(away, places),
        FrontProgram::Caddy => caddy(away, places),
    };
    if away == Away::Closed {
        for file in &mut files {
            file.text = file.text.replace("250ms", PATIENTLY);
        }
    }
    let Behind { tollgate, application } = behind;
    let whole = files.iter().map(|file| file.text.as_str()).collect::<String>();
    for place in ["127.0.0.1:8080", "127.0.0.1:3000"] {
        assert!(whole.contains(place), "docs/forward-auth has no {place} for {}", program.name());
    }
    let in_place = |text: String| {
        text.replace("127.0.0.1:8080", &tollgate.to_string())
            .replace("127.0.0.1:3000", &application.to_string())
    };
    files.into_iter().map(|file| (file.name, in_place(file.text))).collect()
}

fn nginx(away: Away, places: &FrontPlaces<'_>) -> Vec<File> {
    let mut file = File::read("nginx.conf").with("listen 80;", &format!("listen 127.0.0.1:{};", places.port));
    if away == Away::Open {
        file = file
            .with("\n        error_page 500 = @tollgate_away;", "")
            .with("# error_page 500 = @tollgate_open;", "error_page 500 = @tollgate_open;");
    }
    vec![file]
}

fn haproxy(away: Away, places: &FrontPlaces<'_>) -> Vec<File> {
    // A name for the whole machine, unlike a port.
    let section = format!("abns@{}", unique_prefix());
    let mut config = File::read("haproxy.cfg")
        .with("bind :80", &format!("bind 127.0.0.1:{}", places.port))
        .with("/etc/haproxy/tollgate.lua", &in_directory(places, "tollgate.lua"))
        .with("abns@tollgate", &section);
    let mut script = File::read("tollgate.lua").with("abns@tollgate", &section);
    match away {
        Away::Open => config = config.with("lua.tollgate closed", "lua.tollgate open"),
        Away::Closed => {
            config = config.with("timeout client  1s", "timeout client  30s");
            script = script.with("TIMEOUT_MS = 1000", "TIMEOUT_MS = 30000");
        }
    }
    vec![config, script]
}

fn traefik(away: Away, places: &FrontPlaces<'_>) -> Vec<File> {
    let inner = format!("127.0.0.1:{}", places.inner_port);
    let fixed = File::read("traefik.yaml")
        .with("\":80\"", &format!("\"127.0.0.1:{}\"", places.port))
        .with("127.0.0.1:8079", &inner)
        .with("/etc/traefik/traefik-dynamic.yaml", &in_directory(places, "traefik-dynamic.yaml"));
    let mut dynamic = File::read("traefik-dynamic.yaml").with("127.0.0.1:8079", &inner);
    if away == Away::Open {
        dynamic = dynamic
            .with("\n      service: tollgate\n", "\n")
            .with("# service: tollgate-or-open", "service: tollgate-or-open");
    }
    vec![fixed, dynamic]
}

fn caddy(away: Away, places: &FrontPlaces<'_>) -> Vec<File> {
    let mut file = File::read("Caddyfile");
    if away == Away::Open {
        file = file.with("# to 127.0.0.1:8079", "to 127.0.0.1:8079");
    }
    let file = file
        .with("\n:80 {\n", &format!("\n:{} {{\n\tbind 127.0.0.1\n", places.port))
        .with("127.0.0.1:8079", &format!("127.0.0.1:{}", places.inner_port));
    vec![file]
}

fn in_directory(places: &FrontPlaces<'_>, name: &str) -> String {
    places.directory.join(name).display().to_string()
}

/// One file of the documentation.
struct File {
    name: &'static str,
    text: String,
}

impl File {
    fn read(name: &'static str) -> File {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/forward-auth").join(name);
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        File { name, text }
    }

    /// With something else in every place that says `documented`, of which there must be one.
    fn with(mut self, documented: &str, instead: &str) -> File {
        assert!(self.text.contains(documented), "docs/forward-auth/{} has no {documented:?}", self.name);
        self.text = self.text.replace(documented, instead);
        self
    }
}
