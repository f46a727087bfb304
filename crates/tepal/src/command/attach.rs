//! `tepal attach` and `tepal detach`: finds where the volume is served; the rest is in [`crate::attach`].

use super::CommandError;
use super::transfer::TransferError;
use crate::attach::{self, AttachRequest, Attachment, AttachmentState, DaemonCommand, DetachRequest, Method};
use crate::attach::{Attached, Detached, NbdAddress};
use crate::cli::{ATTACH_DAEMON, AttachArguments, DetachArguments, Global, MethodName};
use crate::client::Client;
use crate::locate::{self, LocateError};
use crate::output::{self, Outcome, Output};
use serde_json::json;
use std::time::Duration;
use tepal_model::text::is_name;
use tepal_server::api::types::{
    BY_ID, ClusterInfo, Done, Reserve, ServerInfo, SnapshotInfo, SourceName, VolumeInfo, path, route,
};

pub fn attach(global: &Global, output: Output, arguments: AttachArguments) -> Result<Outcome, CommandError> {
    let AttachArguments { volume, read_only, force, exclusive, take_over, list, method, give_up_after, run_folder } =
        arguments;
    let Some(volume) = volume.filter(|_| !list) else {
        let attachments = attach::list(&run_folder)?;
        output.show(&attachments, |attachments| table(attachments))?;
        return Ok(Outcome::Done);
    };
    let client = locate::client(global)?;
    let found: VolumeInfo = client.get(&path(route::VOLUME, volume.volume()))?;
    if let (Some(replica), SourceName::Volume(name)) = (&found.replica, &volume)
        && !read_only
    {
        let (name, of) = (name.clone(), replica.called.clone());
        return Err(TransferError::Replica { name, of }.into());
    }
    if found.incomplete.is_some() && matches!(volume, SourceName::Volume(_)) && !force {
        return Err(TransferError::incomplete(&found).into());
    }
    let cluster: ClusterInfo = client.get(route::CLUSTER)?;
    // A gateway can't have a volume for itself alone.
    let address = match exclusive {
        None => nbd_address(global, &client, &found)?,
        Some(_) => server_address(global, &client, &found)?,
    };
    let method = method.map(Method::from);
    let daemon = DaemonCommand::this_program(ATTACH_DAEMON);
    let (mut export, mut key) = (format!("{BY_ID}{}", found.id), format!("{}-{}", cluster.id, found.id));
    if let SourceName::Snapshot(name) = &volume {
        let snapshot: SnapshotInfo = client.get(&path(route::SNAPSHOT, &name.to_string()))?;
        // The name may have gone over to another volume in between.
        export = format!("{BY_ID}{}", snapshot.volume_id);
        key = format!("{}-{}", cluster.id, snapshot.volume_id);
        export.push_str(&format!("@{}", snapshot.epoch));
        key.push_str(&format!("@{}", snapshot.epoch));
    }
    if let (Some(holder), SourceName::Volume(_)) = (exclusive, &volume) {
        let holder = holder.unwrap_or_else(machine);
        let asked = Reserve { holder: holder.clone(), take: take_over };
        let _: Done = client.post(&path(route::VOLUME_RESERVATION, &export), &asked)?;
        export.push_str(&format!("?exclusive={holder}"));
    }
    let (volume, give_up_after) = (volume.to_string(), give_up_after.map(Duration::from_millis));
    let request = AttachRequest { volume, export, key, address, read_only, run_folder, method, give_up_after, daemon };
    let attached = attach::attach(&request)?;
    output.show(&attached, |attached: &Attached| attached.device.display().to_string())?;
    Ok(Outcome::Done)
}

impl From<MethodName> for Method {
    fn from(name: MethodName) -> Method {
        match name {
            MethodName::Fuse => Method::Fuse,
            MethodName::Nbd => Method::Nbd,
        }
    }
}

/// This machine's name, as a holder's.
pub fn machine() -> String {
    let name = nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned();
    if is_name(&name) { name } else { "this-machine".to_owned() }
}

pub fn detach(output: Output, arguments: DetachArguments) -> Result<Outcome, CommandError> {
    let DetachArguments { what, force, run_folder } = arguments;
    let detached = attach::detach(&DetachRequest { what: what.clone(), run_folder, force })?;
    let in_use = match &detached {
        Detached::Wholly => None,
        Detached::InUse { device, user } => Some(format!("{} is in use still, {user}", device.display())),
    };
    output.show(&json!({ "detached": what, "in_use": in_use }), |_| match &in_use {
        None => format!("{what} is detached"),
        Some(in_use) => {
            format!("{what} is detached: everything on it fails from now on; {in_use}: end that, and the device goes")
        }
    })?;
    Ok(Outcome::Done)
}

/// The hidden process behind a device.
pub fn daemon(order: &str) -> Outcome {
    match attach::serve(order) == std::process::ExitCode::SUCCESS {
        true => Outcome::Done,
        false => Outcome::Bad,
    }
}

/// Where the volume is reached from this machine: at the gateway of a development cluster, else at a server that has its drives.
pub fn nbd_address(global: &Global, client: &Client, volume: &VolumeInfo) -> Result<NbdAddress, CommandError> {
    if let Some(gateway) = locate::dev_gateway(global) {
        return Ok(gateway);
    }
    server_address(global, client, volume)
}

/// Over TLS, if there's an identity for that: then its rights count, also on the server's own machine.
pub fn server_address(global: &Global, client: &Client, volume: &VolumeInfo) -> Result<NbdAddress, CommandError> {
    let servers: Vec<ServerInfo> = client.get(route::SERVERS)?;
    let has_it = |server: &&ServerInfo| server.drives.iter().any(|drive| volume.drives.contains(&drive.id));
    let mut having = servers.iter().filter(has_it);
    let found = match locate::identity(global) {
        Some(identity) => having.find_map(|server| locate::nbd_over_tls(&server.nbd, &identity)),
        None => having.find_map(|server| locate::nbd(&server.nbd).ok()),
    };
    Ok(found.ok_or(LocateError::NoNbd)?)
}

fn table(attachments: &[Attachment]) -> String {
    let row = |attachment: &Attachment| {
        let state = match attachment.state {
            AttachmentState::Connected => "connected",
            AttachmentState::Waiting => "waiting",
            AttachmentState::Gone => "gone",
            AttachmentState::Dead => "dead",
        };
        let waiting = attachment.waiting_seconds.map(|seconds| format!(" for {seconds}s")).unwrap_or_default();
        vec![
            attachment.volume.clone(),
            attachment.device.display().to_string(),
            output::size(attachment.size),
            attachment.method.to_string(),
            if attachment.read_only { "ro" } else { "rw" }.to_owned(),
            format!("{state}{waiting}"),
            attachment.pid.to_string(),
            attachment.address.to_string(),
            attachment.reason.clone().unwrap_or_default(),
        ]
    };
    let columns = ["volume", "device", ">size", "method", "mode", "state", ">pid", "server", "reason"];
    output::table(&columns, attachments.iter().map(row))
}
