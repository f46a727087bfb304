//! A driver's process, and an orchestrator's side of its socket.

use super::spec::controller_client::ControllerClient;
use super::spec::node_client::NodeClient;
use super::spec::volume_capability::access_mode::Mode;
use super::spec::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use super::spec::volume_content_source::{SnapshotSource, Type, VolumeSource};
use super::spec::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest,
    CreateSnapshotRequest, CreateVolumeRequest, DeleteSnapshotRequest, DeleteVolumeRequest, NodeExpandVolumeRequest,
    NodeGetInfoRequest, NodePublishVolumeRequest, NodeStageVolumeRequest, NodeUnpublishVolumeRequest,
    NodeUnstageVolumeRequest, Snapshot, Volume, VolumeCapability, VolumeContentSource,
};
use crate::program::{self, command, run, spawn, until};
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

pub const MIB: i64 = 1 << 20;
const START: Duration = Duration::from_secs(60);
/// An orchestrator comes again for so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A driver that runs, with mounts and devices of its own. What it leaves is cleared when this is dropped, which is to be before its
/// cluster is.
pub struct Driver {
    command: Box<dyn Fn() -> Command + Send + Sync>,
    folder: PathBuf,
    process: Child,
}

impl Driver {
    /// `folder` is for the driver alone. `tepal` is the binary with what names its cluster.
    pub fn start(folder: &Path, tepal: impl Fn() -> Command + Send + Sync + 'static, arguments: &[&str]) -> Driver {
        std::fs::create_dir_all(folder.join("mnt")).expect("space");
        let (at, more) = (folder.to_owned(), arguments.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        let command = move || {
            let mut command = tepal();
            let endpoint = format!("unix://{}", at.join("csi.sock").display());
            command.args(["csi", "--endpoint", &endpoint, "--run-folder"]).arg(at.join("run")).args(&more);
            command
        };
        let command: Box<dyn Fn() -> Command + Send + Sync> = Box::new(command);
        let process = Self::spawn(&command, folder);
        Driver { command, folder: folder.to_owned(), process }
    }

    fn spawn(command: &dyn Fn() -> Command, folder: &Path) -> Child {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(folder.join("log")).expect("space");
        let process = spawn(command().stdout(Stdio::null()).stderr(log));
        until("the driver to answer", START, || std::os::unix::net::UnixStream::connect(folder.join("csi.sock")).ok());
        process
    }

    /// As if its machine had not enough memory.
    pub fn kill(&mut self) {
        program::kill_group(&mut self.process);
    }

    pub fn start_again(&mut self) {
        self.process = Self::spawn(&*self.command, &self.folder);
    }

    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.folder.join("csi.sock").display())
    }

    pub fn client(&self) -> Orchestrator {
        Orchestrator::connect(&self.endpoint(), &self.folder.join("mnt"))
    }

    /// A place for mounts.
    pub fn mounts(&self) -> PathBuf {
        self.folder.join("mnt")
    }

    /// What is attached by the driver.
    pub fn attached(&self) -> Vec<PathBuf> {
        let mut list = Command::new(crate::cluster::tepal());
        list.args(["-o", "json", "attach", "--list", "--run-folder"]).arg(self.folder.join("run"));
        let listed: Value = serde_json::from_str(&run(&mut list).succeeded()).expect("JSON");
        let devices = listed.as_array().expect("a list").iter().filter_map(|one| one["device"].as_str());
        devices.map(PathBuf::from).collect()
    }

    /// Processes that it has started and that have ended, of which it keeps the remains.
    pub fn remains(&self) -> Vec<String> {
        let is_ours = |fields: &[&str]| fields[0] == "Z" && fields[1] == self.process.id().to_string();
        let processes = std::fs::read_dir("/proc").expect("the kernel's").flatten();
        let stats = processes.filter_map(|process| std::fs::read_to_string(process.path().join("stat")).ok());
        // proc_pid_stat(5): the name is in parentheses, and may have some.
        let of = |stat: &String| {
            stat.rsplit_once(") ").is_some_and(|(_, after)| is_ours(&after.split(' ').collect::<Vec<_>>()))
        };
        stats.filter(of).collect()
    }

    /// What is mounted below its folder.
    pub fn mounted(&self) -> Vec<PathBuf> {
        let text = std::fs::read_to_string("/proc/self/mountinfo").expect("the kernel's");
        let places = text.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
        places.filter(|place| place.starts_with(self.mounts())).collect()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        program::kill_group(&mut self.process);
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            println!("the end of the driver's log:\n{}", lines[lines.len().saturating_sub(40)..].join("\n"));
        }
        // First, so that no unmounting waits for a cluster that may be gone.
        for device in self.attached() {
            let mut detach = Command::new(crate::cluster::tepal());
            run(detach.arg("detach").arg(device).arg("--force").arg("--run-folder").arg(self.folder.join("run")));
        }
        for place in self.mounted().into_iter().rev() {
            run(command("umount", ["--lazy"]).arg(place));
        }
    }
}

/// Somebody who calls a driver, one call after the other.
pub struct Orchestrator {
    runtime: tokio::runtime::Runtime,
    pub controller: ControllerClient<Channel>,
    pub node: NodeClient<Channel>,
    mounts: PathBuf,
}

/// How a call ended.
pub type Answer<T> = Result<T, Status>;

impl Orchestrator {
    pub fn connect(endpoint: &str, mounts: &Path) -> Orchestrator {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let endpoint = Endpoint::from_shared(endpoint.to_owned()).expect("an address");
        let channel = runtime.block_on(endpoint.connect()).expect("a driver that answers");
        let (controller, node) = (ControllerClient::new(channel.clone()), NodeClient::new(channel));
        Orchestrator { runtime, controller, node, mounts: mounts.to_owned() }
    }

    pub fn create(&mut self, asked: CreateVolumeRequest) -> Answer<Volume> {
        let answer = self.runtime.block_on(self.controller.create_volume(asked))?;
        Ok(answer.into_inner().volume.expect("a volume"))
    }

    pub fn delete(&mut self, volume: &str) -> Answer<()> {
        let asked = DeleteVolumeRequest { volume_id: volume.to_owned(), ..Default::default() };
        self.runtime.block_on(self.controller.delete_volume(asked)).map(drop)
    }

    pub fn node_id(&mut self) -> String {
        let answer = self.runtime.block_on(self.node.node_get_info(NodeGetInfoRequest {})).expect("an answer");
        answer.into_inner().node_id
    }

    pub fn give(&mut self, volume: &str, node: &str, capability: &VolumeCapability) -> Answer<HashMap<String, String>> {
        let asked = ControllerPublishVolumeRequest {
            volume_id: volume.to_owned(),
            node_id: node.to_owned(),
            volume_capability: Some(capability.clone()),
            ..Default::default()
        };
        let answer = self.runtime.block_on(self.controller.controller_publish_volume(asked))?;
        Ok(answer.into_inner().publish_context)
    }

    pub fn take(&mut self, volume: &str, node: &str) -> Answer<()> {
        let asked = ControllerUnpublishVolumeRequest {
            volume_id: volume.to_owned(),
            node_id: node.to_owned(),
            ..Default::default()
        };
        self.runtime.block_on(self.controller.controller_unpublish_volume(asked)).map(drop)
    }

    /// Where a volume is staged.
    pub fn staging(&self, volume: &str) -> PathBuf {
        self.mounts.join(format!("staged-{volume}"))
    }

    /// Where a workload finds it.
    pub fn target(&self, volume: &str) -> PathBuf {
        self.mounts.join(format!("pod-{volume}/volume"))
    }

    pub fn stage(
        &mut self,
        volume: &str,
        capability: &VolumeCapability,
        publish_context: HashMap<String, String>,
    ) -> Answer<()> {
        let asked = NodeStageVolumeRequest {
            volume_id: volume.to_owned(),
            staging_target_path: self.staging(volume).display().to_string(),
            volume_capability: Some(capability.clone()),
            publish_context,
            ..Default::default()
        };
        self.runtime.block_on(self.node.node_stage_volume(asked)).map(drop)
    }

    pub fn unstage(&mut self, volume: &str) -> Answer<()> {
        let asked = NodeUnstageVolumeRequest {
            volume_id: volume.to_owned(),
            staging_target_path: self.staging(volume).display().to_string(),
        };
        self.runtime.block_on(self.node.node_unstage_volume(asked)).map(drop)
    }

    pub fn publish(&mut self, volume: &str, capability: &VolumeCapability) -> Answer<PathBuf> {
        let target = self.target(volume);
        self.publish_at(volume, capability, &target, false).map(|()| target)
    }

    pub fn publish_at(
        &mut self,
        volume: &str,
        capability: &VolumeCapability,
        target: &Path,
        readonly: bool,
    ) -> Answer<()> {
        let asked = NodePublishVolumeRequest {
            volume_id: volume.to_owned(),
            staging_target_path: self.staging(volume).display().to_string(),
            target_path: target.display().to_string(),
            volume_capability: Some(capability.clone()),
            readonly,
            ..Default::default()
        };
        self.runtime.block_on(self.node.node_publish_volume(asked)).map(drop)
    }

    pub fn unpublish(&mut self, volume: &str) -> Answer<()> {
        let target = self.target(volume);
        self.unpublish_at(volume, &target)
    }

    pub fn unpublish_at(&mut self, volume: &str, target: &Path) -> Answer<()> {
        let asked =
            NodeUnpublishVolumeRequest { volume_id: volume.to_owned(), target_path: target.display().to_string() };
        self.runtime.block_on(self.node.node_unpublish_volume(asked)).map(drop)
    }

    pub fn snapshot(&mut self, name: &str, of: &str) -> Answer<Snapshot> {
        let asked =
            CreateSnapshotRequest { name: name.to_owned(), source_volume_id: of.to_owned(), ..Default::default() };
        let answer = self.runtime.block_on(self.controller.create_snapshot(asked))?;
        Ok(answer.into_inner().snapshot.expect("a snapshot"))
    }

    pub fn delete_snapshot(&mut self, snapshot: &str) -> Answer<()> {
        let asked = DeleteSnapshotRequest { snapshot_id: snapshot.to_owned(), ..Default::default() };
        self.runtime.block_on(self.controller.delete_snapshot(asked)).map(drop)
    }

    /// In the cluster, and the node has something to do after it.
    pub fn expand(&mut self, volume: &str, size: i64) -> Answer<i64> {
        let asked = ControllerExpandVolumeRequest {
            volume_id: volume.to_owned(),
            capacity_range: Some(CapacityRange { required_bytes: size, limit_bytes: 0 }),
            ..Default::default()
        };
        let answer = self.runtime.block_on(self.controller.controller_expand_volume(asked))?.into_inner();
        assert!(answer.node_expansion_required);
        Ok(answer.capacity_bytes)
    }

    pub fn expand_on_node(&mut self, volume: &str) -> Answer<i64> {
        let asked = NodeExpandVolumeRequest {
            volume_id: volume.to_owned(),
            volume_path: self.target(volume).display().to_string(),
            ..Default::default()
        };
        Ok(self.runtime.block_on(self.node.node_expand_volume(asked))?.into_inner().capacity_bytes)
    }

    /// Any other call.
    pub fn wait<T>(
        &mut self,
        call: impl AsyncFnOnce(&mut ControllerClient<Channel>, &mut NodeClient<Channel>) -> T,
    ) -> T {
        self.runtime.block_on(call(&mut self.controller, &mut self.node))
    }

    /// From a volume that is there to where a workload finds it.
    pub fn bring(&mut self, volume: &str, capability: &VolumeCapability) -> PathBuf {
        let node = self.node_id();
        let context = self.give(volume, &node, capability).expect("given");
        self.stage(volume, capability, context).expect("staged");
        self.publish(volume, capability).expect("published")
    }

    /// The way back.
    pub fn bring_back(&mut self, volume: &str) {
        let node = self.node_id();
        again(|| self.unpublish(volume));
        again(|| self.unstage(volume));
        self.take(volume, &node).expect("taken");
    }
}

/// What is under way, or busy, is asked for again, as an orchestrator does: a process that another test starts has our open files until
/// it becomes another program.
pub fn again<T>(mut call: impl FnMut() -> Answer<T>) -> T {
    until("a call to succeed", PATIENCE, || match call() {
        Ok(done) => Some(done),
        Err(status) if matches!(status.code(), Code::Aborted | Code::FailedPrecondition | Code::Unavailable) => None,
        Err(status) if status.message().contains("busy") => None,
        Err(status) => panic!("{status}"),
    })
}

/// A filesystem of this kind; of whichever, if it's empty.
pub fn filesystem(fs_type: &str, mode: Mode) -> VolumeCapability {
    let mount = MountVolume { fs_type: fs_type.to_owned(), ..Default::default() };
    VolumeCapability {
        access_type: Some(AccessType::Mount(mount)),
        access_mode: Some(AccessMode { mode: mode.into() }),
    }
}

pub fn ext4() -> VolumeCapability {
    filesystem("ext4", Mode::SingleNodeWriter)
}

pub fn block(mode: Mode) -> VolumeCapability {
    VolumeCapability {
        access_type: Some(AccessType::Block(BlockVolume {})),
        access_mode: Some(AccessMode { mode: mode.into() }),
    }
}

pub fn wanted(name: &str, size: i64) -> CreateVolumeRequest {
    CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(CapacityRange { required_bytes: size, limit_bytes: 0 }),
        volume_capabilities: vec![ext4()],
        ..Default::default()
    }
}

/// That volume, made of what a snapshot holds.
pub fn of_snapshot(wanted: CreateVolumeRequest, snapshot: &str) -> CreateVolumeRequest {
    of(wanted, Type::Snapshot(SnapshotSource { snapshot_id: snapshot.to_owned() }))
}

/// That volume, made of what another one holds.
pub fn of_volume(wanted: CreateVolumeRequest, volume: &str) -> CreateVolumeRequest {
    of(wanted, Type::Volume(VolumeSource { volume_id: volume.to_owned() }))
}

fn of(wanted: CreateVolumeRequest, source: Type) -> CreateVolumeRequest {
    CreateVolumeRequest { volume_content_source: Some(VolumeContentSource { r#type: Some(source) }), ..wanted }
}

/// Panics unless it was refused so, in words that have this one.
pub fn refused<T: std::fmt::Debug>(answer: Answer<T>, code: Code, word: &str) {
    let status = answer.expect_err("refused");
    assert!(status.code() == code && status.message().contains(word), "{status}");
}
