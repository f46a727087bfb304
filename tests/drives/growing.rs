//! Drives whose files and devices are enlarged while they are used: `drive grow` takes the room, and costs no request and no byte.

use crate::cluster::{Cluster, Media, Plan, make_drive, tepal};
use crate::nbd::{Ledger, NO_SPACE, Nbd, RequestError, Writer, noise};
use crate::program::{self, command, run, until};
use crate::{need, need_root};
use serde_json::json;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

fn resize(drive: &Path, size: u64) {
    File::options().write(true).open(drive).and_then(|file| file.set_len(size)).expect("our own drive");
}

fn capacity(cluster: &Cluster) -> u64 {
    cluster.ask(&["status"])["capacity"].as_u64().expect("a number")
}

fn agreed(cluster: &Cluster, id: &str) -> u64 {
    let rows = cluster.ask(&["sql", &format!("select capacity from drives where id = '{id}'")]);
    rows["rows"][0][0].as_u64().unwrap_or_else(|| panic!("{rows}"))
}

fn grow(cluster: &Cluster, drive: &Path) {
    let said = cluster.tepal(&["drive", "grow", &cluster.drive_id(drive)]).succeeded();
    assert!(said.contains("has grown"), "{said}");
}

/// Story: a pool was full, and its drives' files were made longer. The room could be used only by draining each drive and adding it anew.
#[test]
fn a_full_pool_takes_writes_again_once_its_drives_have_grown() {
    for (media, layout) in [(Media::Files, "mirror:2"), (Media::Memory, "stripe")] {
        let mut cluster = Plan { media, drives: 2, drive_size: 64 << 20, ..Plan::default() }.up();
        cluster.create("v0", "1G", layout);
        let mut volume = cluster.connect("v0");
        const PIECE: usize = 256 << 10;
        let written = |at: u64| noise(at, PIECE);
        let fill = |volume: &mut Nbd, mut at: u64| loop {
            match volume.write(at, &written(at)) {
                Ok(()) => at += PIECE as u64,
                Err(RequestError::Refused(error)) if error.0 == NO_SPACE => return at,
                Err(error) => panic!("{at}: {error:?}"),
            }
        };
        let before = fill(&mut volume, 0);
        let (was, ids) = (capacity(&cluster), [0, 1].map(|number| cluster.drive_id(cluster.drive(number))));
        let agreed_before = ids.each_ref().map(|id| agreed(&cluster, id));
        let longer = [64 + 96, 64 + 64].map(|size: u64| size << 20);
        for (number, size) in longer.into_iter().enumerate() {
            let drive = cluster.drive(number).to_owned();
            let refused = cluster.tepal(&["drive", "grow", &ids[number]]).refused(1);
            assert!(refused.contains("no more room"), "{refused}");
            resize(&drive, size);
            grow(&cluster, &drive);
            assert!(agreed(&cluster, &ids[number]) > agreed_before[number] + (60 << 20));
        }
        assert!(capacity(&cluster) > was + (150 << 20), "{} and {was}", capacity(&cluster));
        let now = fill(&mut volume, before);
        let copies = if layout == "stripe" { 1 } else { 2 };
        assert!(now - before > (110 << 20) / copies, "{before} {now}");
        // A full drive isn't called healthy.
        const AGAIN: u64 = 32 << 20;
        let now = now - AGAIN;
        volume.trim(now, AGAIN as u32).expect("trimmed");
        volume.flush().expect("flushed");
        // Through a kill and a restart in good order.
        cluster.kill();
        cluster.start();
        for ending in [Cluster::stop, Cluster::kill] {
            let mut volume = cluster.connect("v0");
            for at in (0..now).step_by(PIECE) {
                assert!(volume.read(at, PIECE as u32).expect("read") == written(at), "at {at}");
            }
            cluster.wait_until_healthy("v0");
            ending(&mut cluster);
            cluster.start();
        }
        cluster.scrub_finds_nothing("v0");
        cluster.stop_and_check_drives();
        // It knows the sizes before.
        resize(cluster.drive(0), (64 + 96 + 32) << 20);
        let checked = run(Command::new(tepal()).args(["drive", "check"]).arg(cluster.drive(0))).succeeded();
        assert!(checked.contains(&format!("`tepal drive grow {}`", ids[0])), "{checked}");
    }
}

#[test]
fn drives_that_grow_under_a_writer_cost_no_request_and_no_byte() {
    for (media, layout) in [(Media::Files, "mirror:2"), (Media::Memory, "stripe"), (Media::Memory, "mirror:3")] {
        let mut cluster = Plan { media, drives: 3, drive_size: 64 << 20, ..Plan::default() }.up();
        cluster.create("v0", "16M", layout);
        let mut ledger = Ledger::new(41, 4096);
        ledger.fill(&mut cluster.connect("v0")).expect("written");
        let writer = Writer::start(cluster.address(), "v0", ledger);
        for round in 1..=3 {
            for number in 0..3 {
                let drive = cluster.drive(number).to_owned();
                writer.go_on_for(200);
                resize(&drive, (64 + 16 * round) << 20);
                grow(&cluster, &drive);
                cluster.wait_for_drive(&drive, "up");
                cluster.wait_until_healthy("v0");
            }
        }
        writer.go_on_for(200);
        writer.finish().compare(&mut cluster.connect("v0"));
        cluster.scrub_finds_nothing("v0");
        cluster.stop_and_check_drives();
    }
}

/// The server is killed at any moment of it: the drive has its old size or the new one, and grows when it's asked again.
#[test]
fn a_server_killed_while_its_drive_grows_loses_nothing() {
    let mut cluster = Plan { media: Media::Files, drives: 2, drive_size: 64 << 20, ..Plan::default() }.up();
    cluster.create("v0", "16M", "mirror:2");
    let mut ledger = Ledger::new(42, 4096);
    ledger.fill(&mut cluster.connect("v0")).expect("written");
    let writer = Writer::start(cluster.address(), "v0", ledger);
    let drive = cluster.drive(0).to_owned();
    let id = cluster.drive_id(&drive);
    let (mut size, mut at_once) = (64 << 20, 0);
    for round in 0..24u64 {
        size += 8 << 20;
        resize(&drive, size);
        let mut command = cluster.command();
        command.args(["drive", "grow", &id]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut growing = program::spawn(&mut command);
        std::thread::sleep(Duration::from_millis(50 * round));
        cluster.kill();
        program::kill_group(&mut growing);
        cluster.start();
        cluster.wait_for_drive(&drive, "up");
        let again = cluster.tepal(&["drive", "grow", &id]);
        at_once += u64::from(again.status.code() != Some(0));
        if again.status.code() != Some(0) {
            assert!(again.refused(1).contains("no more room"));
        }
        writer.go_on_for(50);
    }
    println!("{at_once} of 24 had grown when the server was killed");
    cluster.wait_until_healthy("v0");
    assert!(agreed(&cluster, &id) > size - size / 16 - (4 << 20), "{size}");
    writer.finish().compare(&mut cluster.connect("v0"));
    cluster.scrub_finds_nothing("v0");
    cluster.stop_and_check_drives();
}

#[test]
fn a_grown_drive_that_is_cut_short_again_is_refused() {
    let mut cluster = Plan { media: Media::Files, drives: 2, drive_size: 64 << 20, ..Plan::default() }.up();
    cluster.create("v0", "16M", "mirror:2");
    let mut ledger = Ledger::new(43, 4096);
    ledger.fill(&mut cluster.connect("v0")).expect("written");
    let drive = cluster.drive(0).to_owned();
    resize(&drive, 96 << 20);
    grow(&cluster, &drive);
    cluster.wait_until_healthy("v0");
    // To its first size, at which it had a label.
    resize(&drive, 64 << 20);
    let missing = cluster.wait_for_drive(&drive, "missing");
    assert!(missing["reason"].to_string().contains("cut short"), "{missing}");
    let refused = cluster.tepal(&["drive", "grow", &cluster.drive_id(&drive)]).refused(1);
    assert!(refused.contains("is missing") || refused.contains("cut short"), "{refused}");
    cluster.stop();
    let checked = run(Command::new(tepal()).args(["drive", "check"]).arg(&drive)).refused(1);
    assert!(checked.contains("cut short"), "{checked}");
    cluster.start();
    cluster.wait_for_drive(&drive, "missing");
    resize(&drive, 96 << 20);
    cluster.wait_for_drive(&drive, "up");
    cluster.wait_until_healthy("v0");
    ledger.compare(&mut cluster.connect("v0"));
    cluster.scrub_finds_nothing("v0");
    cluster.stop_and_check_drives();
}

#[test]
fn copies_spread_to_what_a_drive_has_grown_by() {
    let mut cluster = Plan { drives: 3, drive_size: 64 << 20, ..Plan::default() }.up();
    cluster.create("v0", "32M", "mirror:2");
    let mut ledger = Ledger::new(44, 8192);
    ledger.fill(&mut cluster.connect("v0")).expect("written");
    let drive = cluster.drive(2).to_owned();
    let copies = || cluster.wait_for_drive(&drive, "up")["copies"].as_u64().expect("a number");
    let before = copies();
    resize(&drive, 1 << 30);
    grow(&cluster, &drive);
    until("the drive to have more", Duration::from_secs(120), || {
        (copies() > before && cluster.ask(&["status"])["moving"] == json!(0)).then_some(())
    });
    ledger.compare(&mut cluster.connect("v0"));
    cluster.scrub_finds_nothing("v0");
    cluster.stop_and_check_drives();
}

#[test]
fn block_devices_and_drives_with_a_log_elsewhere_grow_too() {
    need_root!();
    need!("losetup");
    let scratch = tempfile::tempdir().expect("space");
    let paths = ["disk", "log", "drive1"].map(|name| scratch.path().join(name));
    for (path, size) in paths.iter().zip([64 << 20, 16 << 20, 64 << 20]) {
        make_drive(path, size);
    }
    let device = run(command("losetup", ["--find", "--show"]).arg(&paths[0])).succeeded().trim().to_owned();
    let config = scratch.path().join("tepal.toml");
    let drives = format!(r#"drives = [{{ path = "{device}", log = "log" }}, "drive1"]"#);
    std::fs::write(&config, format!("{drives}\n")).expect("space");
    let arguments = vec!["--config".to_owned(), config.display().to_string()];
    let mut cluster = Plan { drives: 0, arguments, ..Plan::default() }.up();
    cluster.create("v0", "8M", "mirror:2");
    let writer = Writer::start(cluster.address(), "v0", Ledger::new(45, 2048));
    for round in 1..=2 {
        writer.go_on_for(300);
        resize(&paths[0], (64 + 32 * round) << 20);
        run(&mut command("losetup", ["-c", device.as_str()])).succeeded();
        grow(&cluster, Path::new(&device));
        cluster.wait_until_healthy("v0");
    }
    cluster.kill();
    cluster.start();
    writer.go_on_for(300);
    writer.finish().compare(&mut cluster.connect("v0"));
    cluster.scrub_finds_nothing("v0");
    cluster.stop();
    run(Command::new(tepal()).args(["drive", "check", &device, "--log"]).arg(&paths[1])).succeeded();
    run(&mut command("losetup", ["--detach", device.as_str()])).succeeded();
}
