//! `tepal dev up`: makes the cluster what was asked for, from whatever is there.

use super::cluster::Cluster;
use super::folder::{DevError, Folder, Plan};
use super::network::{self, Network};
use super::process::ProcessState;
use super::status::nbd_uri;
use crate::cli::{UpArguments, VolumeRequest};
use crate::client::{Client, ClientError};
use crate::command::CommandError;
use crate::interrupt::Interrupt;
use crate::output::{self, Output};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};
use tepal_model::{Layout, ServerId};
use tepal_server::api::types::{AddDrive, CreateVolume, DriveInfo, VolumeInfo, VolumeState, path, route};

const SERVERS: u32 = 4;
const DRIVES: u32 = 1;
const DRIVE_SIZE: u64 = 4 << 30;
/// How often a cluster in the foreground is looked at.
const LOOK: Duration = Duration::from_millis(500);
const LOOK_FOR_VOLUMES: Duration = Duration::from_millis(50);
/// How long volumes may take to be served, after which `status` says why they aren't.
const SERVED_WITHIN: Duration = Duration::from_secs(10);
/// When it's told what is waited for.
const TOLD_AFTER: Duration = Duration::from_secs(1);

/// Whether the cluster ran before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Was {
    Running,
    Down,
}

pub fn run(dir: &Path, output: Output, arguments: UpArguments) -> Result<(), CommandError> {
    let interrupt = Interrupt::catch()?;
    let detach = arguments.detach;
    let (cluster, was) = bring_up(dir, &arguments, &interrupt)?;
    if output.is_json() {
        super::status::run(&cluster, output)?;
    } else {
        output.say(&addresses(&cluster, was, detach)?)?;
        if was == Was::Running && arguments.emulate.is_some() {
            let dir = super::dir_option(cluster.folder());
            output.say(&format!("drives are emulated so when it's started again: tepal{dir} dev down, then dev up"))?;
        }
    }
    if detach || was == Was::Running {
        return Ok(());
    }
    watch(&cluster, output, &interrupt)
}

/// The cluster, running, with its drives and volumes.
pub fn bring_up(dir: &Path, arguments: &UpArguments, interrupt: &Interrupt) -> Result<(Cluster, Was), DevError> {
    let folder = Folder::make(dir)?;
    let _lock = folder.lock()?;
    let before = folder.plan()?;
    match &before {
        Some(before) => folder.check_state(before)?,
        None if arguments.memory => folder.check_left_drives()?,
        None => {}
    }
    let mut plan = revise(&folder, before.clone(), arguments)?;
    if let Err(error) = make(&folder, &mut plan, arguments) {
        // What can't be had must not be in the way of what is asked for next.
        match before {
            Some(before) => folder.save(&before)?,
            None => {
                if arguments.isolate {
                    Network::remove(folder.path())?;
                }
                folder.purge()?;
            }
        }
        return Err(error);
    }
    let cluster = Cluster::with_plan(folder, plan)?;
    let was = run_all(&cluster, interrupt)?;
    let cluster = Cluster::new(cluster.folder().clone())?;
    let client = cluster.client()?;
    let settled = cluster.start_gateway(interrupt).and_then(|()| settle(&cluster, &client, arguments, interrupt));
    let settled = settled.and_then(|()| match arguments.detach || was == Was::Running {
        true => Ok(()),
        false => cluster.folder().take_foreground(),
    });
    match settled {
        Ok(()) => Ok((cluster, was)),
        Err(error) => {
            // What was down stays down if it can't be had as it was asked for.
            if was == Was::Down {
                cluster.stop()?;
            }
            Err(error)
        }
    }
}

/// Makes everything that the plan wants but the servers, which can be done again and again.
fn make(folder: &Folder, plan: &mut Plan, arguments: &UpArguments) -> Result<(), DevError> {
    if arguments.isolate && plan.isolated.is_none() {
        plan.isolated = Some(Network::found(folder.path())?);
    }
    if plan.isolated.is_some() {
        network::check_size(plan.servers as usize)?;
    }
    folder.save(plan)?;
    folder.check_memory(plan)?;
    folder.check_sockets(plan.servers)?;
    (1..=plan.servers).try_for_each(|server| folder.make_drives(ServerId(server), plan))?;
    (plan.drives_made, plan.servers_made) = (plan.drives, plan.servers);
    folder.save(plan)
}

/// Has all servers run: first those that are members already, all at once, then new ones, which join in their order.
fn run_all(cluster: &Cluster, interrupt: &Interrupt) -> Result<Was, DevError> {
    let (mut running, mut down) = (Vec::new(), Vec::new());
    for server in cluster.servers() {
        let process = cluster.process(server);
        if process.is_stopping() {
            process.stop()?; // somebody began to, and may have been killed
        }
        match process.state()? {
            ProcessState::Running { .. } => running.push(server),
            ProcessState::Paused { pid } => return Err(DevError::Paused { server, pid }),
            ProcessState::Down => down.push(server),
        }
    }
    let was = if down.is_empty() { Was::Running } else { Was::Down };
    let (members, new): (Vec<_>, Vec<_>) = down.iter().partition(|server| cluster.folder().is_member(**server));
    let start = || {
        cluster.start(&members, interrupt)?;
        running.iter().try_for_each(|server| cluster.wait_for_running(*server, interrupt))?;
        new.iter().try_for_each(|server| cluster.start(&[*server], interrupt))
    };
    match start() {
        Ok(()) => Ok(was),
        Err(error) => {
            // What was started and isn't to be is stopped again.
            if matches!(error, DevError::Interrupted) {
                down.iter().try_for_each(|server| cluster.process(*server).stop().map(drop))?;
            }
            Err(error)
        }
    }
}

fn settle(cluster: &Cluster, client: &Client, arguments: &UpArguments, interrupt: &Interrupt) -> Result<(), DevError> {
    cluster.servers().into_iter().try_for_each(|server| add_drives(cluster, client, server))?;
    arguments.volumes.iter().try_for_each(|request| make_volume(client, request))?;
    wait_for_volumes(client, interrupt)
}

/// Servers that have just started ask each other what they have. If standard error is closed there is nobody to tell.
fn wait_for_volumes(client: &Client, interrupt: &Interrupt) -> Result<(), DevError> {
    let (begun, mut told) = (Instant::now(), Vec::new());
    loop {
        let waiting = not_served(&client.get::<Vec<VolumeInfo>>(route::VOLUMES)?);
        if waiting.is_empty() {
            return Ok(());
        }
        let waited = begun.elapsed();
        if waited >= SERVED_WITHIN {
            let why = "the cluster isn't whole, and isn't waited for any longer: `tepal status` says how it is by then";
            let _ = writeln!(io::stderr(), "{why}");
            return Ok(());
        }
        if waited >= TOLD_AFTER {
            for text in waiting.into_iter().filter(|text| !told.contains(text)).collect::<Vec<_>>() {
                let _ = writeln!(io::stderr(), "waiting for {text}");
                told.push(text);
            }
        }
        if interrupt.wait(LOOK_FOR_VOLUMES) {
            return Err(DevError::Interrupted);
        }
    }
}

/// Each volume of which something can't be read or written now, and why.
fn not_served(volumes: &[VolumeInfo]) -> Vec<String> {
    let unavailable = volumes.iter().filter(|volume| volume.state == VolumeState::Unavailable);
    unavailable.map(|volume| format!("volume {}: {}", volume.name, volume.reason.join("; "))).collect()
}

/// The plan as the arguments want it; what they don't say stays.
fn revise(folder: &Folder, before: Option<Plan>, arguments: &UpArguments) -> Result<Plan, DevError> {
    let UpArguments { servers, drives, drive_size, memory, emulate, .. } = arguments;
    let Some(mut plan) = before else {
        let (drives, size) = (drives.unwrap_or(DRIVES), drive_size.unwrap_or(DRIVE_SIZE));
        let plan = Plan::new(drives, size, *memory, emulate.clone());
        return Ok(Plan { servers: servers.unwrap_or(SERVERS), ..plan });
    };
    let different = |option, made: String, wanted: String| {
        Err(DevError::Different { folder: folder.named().to_owned(), option, made, wanted })
    };
    match *servers {
        Some(wanted) if wanted < plan.servers => {
            return different("--servers", plan.servers.to_string(), wanted.to_string());
        }
        Some(wanted) => plan.servers = wanted,
        None => {}
    }
    match *drives {
        Some(wanted) if wanted < plan.drives => {
            return different("--drives", plan.drives.to_string(), wanted.to_string());
        }
        Some(wanted) => plan.drives = wanted,
        None => {}
    }
    if let Some(wanted) = *drive_size
        && wanted != plan.drive_size
    {
        return different("--drive-size", plan.size_text(), output::size(wanted));
    }
    if *memory && !plan.memory {
        return different("--memory", "off".to_owned(), "on".to_owned());
    }
    if arguments.isolate && plan.isolated.is_none() {
        return different("--isolate", "off".to_owned(), "on".to_owned());
    }
    if emulate.is_some() {
        plan.emulate.clone_from(emulate);
    }
    Ok(plan)
}

/// The server takes the drives that it is started with by itself; a server that runs already is told of new ones.
fn add_drives(cluster: &Cluster, client: &Client, server: ServerId) -> Result<(), DevError> {
    let mut known: Vec<DriveInfo> = client.get(route::DRIVES)?;
    known.retain(|drive| drive.server == server);
    let plan = cluster.plan();
    for number in 0..plan.drives {
        let path = cluster.folder().drive(server, number);
        // One that was pulled is not there.
        if path.exists()
            && !known.iter().any(|drive| Path::new(&drive.path) == path)
            && plan.drives > known.len() as u32
        {
            let path = path.display().to_string();
            let add = AddDrive { server, path, pool: None, create: None, force: false };
            match client.post::<DriveInfo>(route::DRIVES, &add) {
                Ok(_) => {}
                // The others are of use without it. If standard error is closed there is nobody to tell.
                Err(error @ ClientError::Refused { .. }) => {
                    let _ = writeln!(io::stderr(), "a drive of server {server} isn't used: {error}");
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

fn make_volume(client: &Client, request: &VolumeRequest) -> Result<(), DevError> {
    let VolumeRequest { name, size, layout } = request;
    match client.get::<VolumeInfo>(&path(route::VOLUME, name)) {
        Ok(found) => is_as_wanted(&found, request),
        Err(error) if error.is_not_found() => {
            let layout = layout.as_ref().map(ToString::to_string);
            let create = CreateVolume {
                name: name.clone(),
                size: *size,
                layout,
                pool: None,
                key: None,
                plain: false,
                import: None,
            };
            let _: VolumeInfo = client.post(route::VOLUMES, &create)?;
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

fn is_as_wanted(found: &VolumeInfo, wanted: &VolumeRequest) -> Result<(), DevError> {
    let different = |option, made: String, wanted: String| {
        Err(DevError::OtherVolume { name: found.name.clone(), option, made, wanted })
    };
    if found.size != wanted.size {
        return different("size", output::size(found.size), output::size(wanted.size));
    }
    match &wanted.layout {
        Some(layout) if found.layout.parse::<Layout>().as_ref() != Ok(layout) => {
            different("layout", found.layout.clone(), layout.to_string())
        }
        _ => Ok(()),
    }
}

/// What the user needs to know of a cluster that is up.
fn addresses(cluster: &Cluster, was: Was, detached: bool) -> Result<String, DevError> {
    let folder = cluster.folder();
    let volumes: Vec<VolumeInfo> = cluster.client()?.get(route::VOLUMES)?;
    // What was asked for may have made it larger than it was.
    let state = match (was, folder.plan()?) {
        (Was::Running, Some(Plan { servers, drives, .. })) => {
            format!("was running already; its servers are {servers} now, with {drives} drives each")
        }
        (Was::Running, None) => "was running already".to_owned(),
        (Was::Down, _) => "is up".to_owned(),
    };
    let mut lines = vec![format!("the cluster in {} {state}", folder.shown())];
    for addresses in cluster.servers().into_iter().filter_map(|id| cluster.addresses(id).ok().flatten()) {
        lines.push(format!("api   http://{}    (in a browser: the console)", addresses.api));
    }
    lines.push(format!("token {}", folder.data(ServerId(1)).join("token").display()));
    match volumes.as_slice() {
        [] => {
            lines.push(format!("nbd   {}    (no volume yet: tepal volume create)", nbd_uri("NAME", &folder.socket())))
        }
        volumes => {
            lines.extend(volumes.iter().map(|volume| format!("nbd   {}", nbd_uri(&volume.name, &folder.socket()))));
        }
    }
    let dir = super::dir_option(folder);
    lines.push(match was == Was::Running || detached {
        true => format!("stop  tepal{dir} dev down"),
        false => "stop  Ctrl-C".to_owned(),
    });
    Ok(lines.join("\n"))
}

/// Until the user wants to end: then all servers are stopped in good order, unless somebody else has the cluster by then.
fn watch(cluster: &Cluster, output: Output, interrupt: &Interrupt) -> Result<(), CommandError> {
    let mut before = cluster.states()?;
    loop {
        let is_interrupted = interrupt.wait(LOOK);
        if cluster.folder().path().exists() && !cluster.folder().has_foreground() {
            output.say("another command has stopped the cluster: this one ends")?;
            return Ok(());
        }
        if is_interrupted {
            break;
        }
        let now = match cluster.states() {
            Ok(now) => now,
            // Removed by `dev down --purge`: there is nothing left to watch.
            Err(_) if !cluster.folder().path().exists() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for ((id, was), (_, is)) in before.iter().zip(&now).filter(|(was, is)| was != is) {
            let text = match (was, is) {
                (_, ProcessState::Down) => format!("{id} has ended: `tepal dev start {id}` starts it again"),
                (ProcessState::Paused { .. }, _) => format!("{id} goes on"),
                (_, ProcessState::Paused { .. }) => format!("{id} is paused: `tepal dev resume {id}` lets it go on"),
                (_, ProcessState::Running { pid }) => format!("{id} is running, as process {pid}"),
            };
            output.say(&text)?;
        }
        before = now;
    }
    let stopped = cluster.stop()?;
    if !stopped.is_empty() {
        output.say("stopped; `tepal dev up` brings it back with its data")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &str) -> UpArguments {
        let words = format!("tepal dev up {line}");
        let cli = crate::cli::parse(words.split_whitespace().map(Into::into)).expect("right");
        match cli.command {
            crate::cli::Command::Dev(crate::cli::DevCommand::Up(arguments)) => arguments,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_not_said_stays_as_it_was_made() {
        let scratch = tempfile::tempdir().expect("space");
        let folder = Folder::make(&scratch.path().join("dev")).expect("made");
        let made = revise(&folder, None, &arguments("--servers 1 --drives 4 --drive-size 1G --memory --emulate hdd"))
            .expect("new");
        assert_eq!(made, Plan::new(4, 1 << 30, true, Some("hdd".into())));
        assert_eq!(revise(&folder, Some(made.clone()), &arguments("")).expect("same"), made);
        let more = revise(&folder, Some(made.clone()), &arguments("--drives 6 --emulate nvme")).expect("more");
        assert_eq!((more.drives, more.emulate), (6, Some("nvme".into())));
        let default = Plan { servers: 4, ..Plan::new(1, 4 << 30, false, None) };
        assert_eq!(revise(&folder, None, &arguments("")).expect("new"), default);
    }

    #[test]
    fn what_can_not_be_changed_is_refused() {
        let scratch = tempfile::tempdir().expect("space");
        let folder = Folder::make(&scratch.path().join("dev")).expect("made");
        let made = Plan::new(4, 1 << 30, false, None);
        for (line, said) in [
            ("--drives 3", "with --drives 4"),
            ("--drive-size 2G", "with --drive-size 1G"),
            ("--memory", "with --memory off"),
            ("--isolate", "with --isolate off"),
        ] {
            let error = revise(&folder, Some(made.clone()), &arguments(line)).expect_err(line).to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
