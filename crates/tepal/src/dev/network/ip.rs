//! Running `ip`, of iproute2.

use super::NetworkError;
use std::io;
use std::process::{Command, Output, Stdio};

/// The system's own folders are not in everybody's PATH.
const PLACES: [&str; 3] = ["ip", "/usr/sbin/ip", "/sbin/ip"];

pub fn ip(arguments: &[&str]) -> Result<(), NetworkError> {
    ask(arguments).map(|_| ())
}

/// What it says.
pub fn ask(arguments: &[&str]) -> Result<String, NetworkError> {
    let Output { status, stdout, stderr } = run(arguments)?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&stderr);
    let said = said.trim();
    let said = if said.is_empty() { status.to_string() } else { said.to_owned() };
    Err(NetworkError::Ip { arguments: arguments.join(" "), said })
}

fn run(arguments: &[&str]) -> Result<Output, NetworkError> {
    for place in PLACES {
        // What it says is read here, so it's to say it in one language.
        let ended = Command::new(place).args(arguments).env("LC_ALL", "C").stdin(Stdio::null()).output();
        match ended {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            ended => return ended.map_err(NetworkError::Run),
        }
    }
    Err(NetworkError::NoIp)
}
