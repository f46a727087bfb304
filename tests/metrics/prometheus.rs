//! A real Prometheus that reads the metrics of servers every second, and evaluates the alerts of the repository on them.

use super::{api, get};
use crate::program::{self, until};
use serde_json::Value;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;
use tempfile::TempDir;

/// For an alert to begin or to end, however busy the machine is.
const SETTLE: Duration = Duration::from_secs(120);

/// The folder of what is for those who watch a cluster.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/monitoring")
}

/// One with a folder of its own. It's killed when it's dropped.
pub struct Prometheus {
    _folder: TempDir,
    child: Child,
    address: String,
}

impl Prometheus {
    /// Watches the servers with these data folders. What alerts wait for is cut to a second.
    pub fn watching(servers: &[PathBuf]) -> Prometheus {
        Self::quicker(servers, &[])
    }

    /// The same, with other parts of alerts cut, too: what is written there, and what stands for it here.
    pub fn quicker(servers: &[PathBuf], cuts: &[(&str, &str)]) -> Prometheus {
        let folder = tempfile::tempdir().expect("space");
        let at = |name: &str| folder.path().join(name);
        let alerts = std::fs::read_to_string(self::folder().join("alerts.yml")).expect("the alerts");
        let quick: Vec<&str> = alerts
            .lines()
            .map(|line| if line.trim_start().starts_with("for: ") { "        for: 1s" } else { line })
            .collect();
        let quick = cuts.iter().fold(quick.join("\n"), |alerts, (long, short)| {
            assert!(alerts.contains(long), "no alert says {long}");
            alerts.replace(long, short)
        });
        std::fs::write(at("alerts.yml"), quick).expect("space");
        let token = servers[0].join("token");
        let targets: Vec<String> = servers.iter().map(|data| format!("'{}'", api(data))).collect();
        let config = format!(
            "global: {{ scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s }}\nrule_files: [ alerts.yml ]\n\
             scrape_configs:\n  - job_name: tepal-test\n    authorization: {{ credentials_file: '{}' }}\n    static_configs:\n      \
             - targets: [ {} ]\n",
            token.display(),
            targets.join(", ")
        );
        std::fs::write(at("prometheus.yml"), config).expect("space");
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("loopback");
        let address = free.to_string();
        let log = std::fs::File::create(at("log")).expect("space");
        let mut command = program::command("prometheus", ["--log.level=warn"]);
        command.arg(format!("--config.file={}", at("prometheus.yml").display()));
        command.arg(format!("--storage.tsdb.path={}", at("data").display()));
        command.arg(format!("--web.listen-address={address}")).current_dir(folder.path());
        command.stdout(std::process::Stdio::null()).stderr(log);
        let child = program::spawn(&mut command);
        let prometheus = Prometheus { _folder: folder, child, address };
        until("Prometheus to have read all servers", SETTLE, || {
            (prometheus.values("up == 1").len() == servers.len()).then_some(())
        });
        prometheus
    }

    fn ask(&self, path: &str) -> Value {
        get(&self.address, path, None).and_then(|body| serde_json::from_str(&body).ok()).unwrap_or_default()
    }

    /// What an expression gives now.
    pub fn values(&self, expression: &str) -> Vec<Value> {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let said = self.ask(&format!("/api/v1/query?query={encoded}"));
        said["data"]["result"].as_array().cloned().unwrap_or_default()
    }

    /// The names of alerts that fire, each once.
    pub fn firing(&self) -> Vec<String> {
        let said = self.ask("/api/v1/alerts");
        let alerts = said["data"]["alerts"].as_array().cloned().unwrap_or_default();
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        let mut names: Vec<String> =
            firing.filter_map(|alert| Some(alert["labels"]["alertname"].as_str()?.to_owned())).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Waits until all these fire.
    pub fn wait_for(&self, names: &[&str]) {
        self.wait(&format!("{names:?} to fire"), |firing| {
            names.iter().all(|name| firing.iter().any(|one| one == name))
        });
    }

    /// Waits until none of these fires.
    pub fn wait_for_end_of(&self, names: &[&str]) {
        let has_ended = |firing: &[String]| !names.iter().any(|name| firing.iter().any(|one| one == name));
        self.wait(&format!("{names:?} to end"), has_ended);
    }

    fn wait(&self, what: &str, is_so: impl Fn(&[String]) -> bool) {
        let mut last = Vec::new();
        let end = std::time::Instant::now() + SETTLE;
        while std::time::Instant::now() < end {
            last = self.firing();
            if is_so(&last) {
                return;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        panic!("waited {SETTLE:?} in vain: {what}; {last:?} fire");
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        program::kill_group(&mut self.child);
    }
}
