//! Keys that wrap those of volumes: kinds of them, wrong ones, none, others; and volumes that are gone for good.

use super::{create_key, up, worded};
use crate::nbd::Nbd;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;

#[test]
fn without_its_key_a_volume_is_kept_and_not_read() {
    let mut encrypting = up();
    encrypting.create("v", &["--layout", "mirror:2"]);
    encrypting.cluster.connect("v").write(0, &worded(4096)).expect("written");
    encrypting.cluster.tepal(&["snapshot", "create", "v@s"]).succeeded();
    let (file, away) = (encrypting.key("main.key"), encrypting.key("elsewhere"));
    std::fs::rename(&file, &away).expect("ours");
    encrypting.cluster.stop();
    encrypting.cluster.start();
    let refused = |name: &str| {
        let error = Nbd::open(&encrypting.cluster.address(), name).err().expect("nobody has the key").to_string();
        assert!(error.contains("key 'main' is needed, and"), "{error}");
    };
    refused("v");
    refused("v@s");
    let said = encrypting.run(&["volume", "export", "v"]).refused(1);
    assert!(said.contains("main.key"), "{said}");
    let said = encrypting.run(&["volume", "create", "w", "--size", "1M", "--key", "main"]).refused(1);
    assert!(said.contains("key 'main' is needed"), "{said}");
    let shown = encrypting.cluster.volume("v");
    assert_eq!(shown["keyless_servers"], json!(["s1"]));
    let said = String::from_utf8(encrypting.run(&["doctor"]).stdout).expect("text");
    assert!(said.contains("key 'main' isn't in the folder of keys of s1"), "{said}");
    let image = encrypting.cluster.folder().join("image");
    std::fs::write(&image, worded(4096)).expect("space");
    let image = image.to_str().expect("text");
    encrypting.run(&["volume", "import", "v", "--from", image, "--format", "raw"]).refused(1);
    assert_eq!(encrypting.cluster.volume("v")["incomplete"], json!(null), "nothing of an import is there");
    // What wants no plaintext goes on.
    encrypting.cluster.scrub_finds_nothing("v");
    encrypting.cluster.tepal(&["snapshot", "create", "v@t"]).succeeded();
    encrypting.cluster.tepal(&["volume", "relayout", "v", "--layout", "stripe", "--wait"]).succeeded();
    encrypting.cluster.tepal(&["volume", "resize", "v", "32M"]).succeeded();
    // The key of somebody else, under its name.
    create_key(encrypting.keys.path(), "main").succeeded();
    let error = Nbd::open(&encrypting.cluster.address(), "v").err().expect("it's another key").to_string();
    assert!(error.contains("it isn't the key by which the volume's was wrapped"), "{error}");
    let said = encrypting.run(&["volume", "create", "w", "--size", "1M", "--key", "main"]).refused(1);
    assert!(said.contains("it isn't the key by which"), "a second key of that name: {said}");
    // Its own comes back, and the server isn't started again for that.
    std::fs::rename(&away, &file).expect("ours");
    assert_eq!(encrypting.cluster.connect("v").read(0, 4096).expect("read"), worded(4096));
    assert_eq!(encrypting.cluster.connect("v@s").read(0, 4096).expect("read"), worded(4096));
}

#[test]
fn a_passphrase_or_a_command_gives_a_key() {
    let mut encrypting = up();
    let secret = encrypting.key("elsewhere");
    std::fs::rename(encrypting.key("main.key"), &secret).expect("ours");
    encrypting.write_key("words.passphrase", "four words are better\n");
    encrypting.write_key("asked.command", &format!("cat '{}'\n", secret.display()));
    for (number, key) in ["words", "asked"].iter().enumerate() {
        let name = format!("v{number}");
        encrypting.run(&["volume", "create", &name, "--size", "1M", "--key", key]).succeeded();
        encrypting.cluster.connect(&name).write(0, &worded(4096)).expect("written");
    }
    encrypting.cluster.stop();
    encrypting.cluster.start();
    for name in ["v0", "v1"] {
        assert_eq!(encrypting.cluster.connect(name).read(0, 4096).expect("read"), worded(4096));
    }
}

#[test]
fn a_bad_key_file_is_refused_with_the_reason() {
    let encrypting = up();
    encrypting.write_key("short.key", "00ff\n");
    encrypting.write_key("few.passphrase", "words\n");
    encrypting.write_key("fails.command", "exit 3\n");
    encrypting.write_key("prints.command", "echo nothing of use\n");
    encrypting.write_key("long.key", &"0".repeat(5000));
    encrypting.write_key("open.key", &"0".repeat(64));
    crate::program::run(std::process::Command::new("mkfifo").args(["-m", "600"]).arg(encrypting.key("pipe.key")))
        .succeeded();
    encrypting.write_key("lingers.command", "sleep 600 & echo of no use\n");
    let open = encrypting.key("open.key");
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o644)).expect("ours");
    for (key, reason) in [
        ("short", "short.key: a key is 64 hexadecimal digits"),
        ("few", "few.passphrase: a passphrase has at least 8 bytes"),
        ("fails", "fails.command: the command failed: exit status: 3"),
        ("prints", "prints.command: a key is 64 hexadecimal digits"),
        ("long", "long.key: it has more than 4096 bytes"),
        ("open", "open.key may be read or written by others than its owner: chmod 600 it"),
        ("pipe", "pipe.key: it isn't a file"),
        ("lingers", "lingers.command: a key is 64 hexadecimal digits"),
        ("none", "none of none.key, none.passphrase and none.command"),
    ] {
        let said = encrypting.run(&["volume", "create", "v", "--size", "1M", "--key", key]).refused(1);
        assert!(said.contains(reason), "{key}: {said}");
    }
    let said = create_key(encrypting.keys.path(), "main").refused(1);
    assert!(said.contains("is there already"), "{said}");
    std::fs::set_permissions(encrypting.keys.path(), std::fs::Permissions::from_mode(0o777)).expect("ours");
    let said = encrypting.run(&["volume", "create", "v", "--size", "1M", "--key", "main"]).refused(1);
    assert!(said.contains("chmod 700 it"), "{said}");
    assert_eq!(encrypting.cluster.ask(&["volume", "ls"]), json!([]));
}

#[test]
fn new_volumes_of_a_pool_with_a_key_are_encrypted_if_nothing_else_is_said() {
    let mut encrypting = up();
    let encryption_of = |encrypting: &super::Encrypting, name: &str| encrypting.cluster.volume(name)["key"].clone();
    encrypting.run(&["volume", "create", "before", "--size", "1M"]).succeeded();
    encrypting.run(&["pool", "set", "default", "--key", "missing"]).refused(1);
    encrypting.run(&["pool", "set", "default", "--key", "main"]).succeeded();
    assert!(encrypting.run(&["pool", "show", "default"]).succeeded().contains("main"));
    encrypting.cluster.stop();
    encrypting.cluster.start();
    encrypting.run(&["volume", "create", "after", "--size", "1M"]).succeeded();
    encrypting.run(&["volume", "create", "open", "--size", "1M", "--plain"]).succeeded();
    encrypting.run(&["volume", "create", "both", "--size", "1M", "--plain", "--key", "main"]).refused(2);
    let found = ["before", "after", "open"].map(|name| encryption_of(&encrypting, name));
    assert_eq!(found, [json!(null), json!("main"), json!(null)]);
    encrypting.cluster.connect("after").write(0, &worded(4096)).expect("written");
    assert_eq!(encrypting.found_on_drives(super::WORDS), 0);
    encrypting.run(&["pool", "set", "default", "--plain"]).succeeded();
    encrypting.run(&["volume", "create", "later", "--size", "1M"]).succeeded();
    assert_eq!(encryption_of(&encrypting, "later"), json!(null));
}

#[test]
fn a_command_that_fails_leaves_no_process_behind() {
    let encrypting = up();
    let told = encrypting.cluster.folder().join("pid");
    encrypting.write_key("fails.command", &format!("sleep 600 & echo $! > '{}'; exit 3\n", told.display()));
    encrypting.run(&["volume", "create", "v", "--size", "1M", "--key", "fails"]).refused(1);
    let process = std::fs::read_to_string(told).expect("the command ran");
    let state = || std::fs::read_to_string(format!("/proc/{}/stat", process.trim())).unwrap_or_default();
    // One that nobody has waited for yet is no process any more.
    let is_gone = || (state().is_empty() || state().contains(") Z ")).then_some(());
    crate::program::until("the process to be gone", std::time::Duration::from_secs(30), is_gone);
}

#[test]
fn keys_are_listed_by_name_without_their_secrets() {
    let encrypting = up();
    encrypting.write_key("words.passphrase", "a few words that nobody guesses\n");
    encrypting.write_key("main.command", "cat /dev/null\n");
    encrypting.write_key("notes.txt", "no key\n");
    let keys = encrypting.keys.path().to_str().expect("text").to_owned();
    let listed = encrypting.run(&["key", "ls", "--keys", &keys]).succeeded();
    assert!(listed.contains("main") && listed.contains("words") && !listed.contains("notes"), "{listed}");
    assert!(!listed.contains("nobody guesses") && !listed.contains("/dev/null"), "{listed}");
    let listed: serde_json::Value =
        serde_json::from_str(&encrypting.run(&["-o", "json", "key", "ls", "--keys", &keys]).succeeded()).expect("JSON");
    assert_eq!(listed, json!({"main": "key", "words": "passphrase"}), "of two files of one name, the one that counts");
    encrypting.run(&["key", "ls", "--keys", "/nowhere"]).refused(1);
}

#[test]
fn a_volume_goes_to_another_key_and_its_clone_stays() {
    let mut encrypting = up();
    encrypting.create("v", &[]);
    encrypting.cluster.connect("v").write(0, &worded(4096)).expect("written");
    encrypting.cluster.tepal(&["snapshot", "create", "v@s"]).succeeded();
    encrypting.cluster.tepal(&["volume", "clone", "v@s", "c"]).succeeded();
    create_key(encrypting.keys.path(), "next").succeeded();
    let stored = encrypting.found_on_drives(&worded(64));
    encrypting.cluster.tepal(&["volume", "rekey", "v", "next"]).succeeded();
    assert_eq!(stored, 0);
    let keys = |name: &str| encrypting.cluster.volume(name)["key"].clone();
    assert_eq!((keys("v"), keys("c")), (json!("next"), json!("main")));
    let said = encrypting.run(&["events"]).succeeded();
    assert!(said.contains("its key is wrapped by key 'next', not by 'main' any more"), "{said}");
    std::fs::remove_file(encrypting.key("main.key")).expect("ours");
    encrypting.cluster.stop();
    encrypting.cluster.start();
    assert_eq!(encrypting.cluster.connect("v").read(0, 4096).expect("read"), worded(4096));
    assert!(Nbd::open(&encrypting.cluster.address(), "c").is_err(), "its key is gone");
    let said = encrypting.run(&["volume", "rekey", "c", "next"]).refused(1);
    assert!(said.contains("key 'main' is needed"), "{said}");
    encrypting.cluster.create("plain", "1M", "stripe");
    let said = encrypting.run(&["volume", "rekey", "plain", "next"]).refused(1);
    assert!(said.contains("isn't encrypted: that is chosen when a volume is created"), "{said}");
}

#[test]
fn the_key_of_a_removed_volume_is_gone_at_once() {
    let encrypting = up();
    encrypting.create("v", &[]);
    let keys = || encrypting.cluster.ask(&["sql", "select key, wrapped from volume_keys"]);
    assert_eq!(keys()["rows"].as_array().map(Vec::len), Some(1));
    encrypting.cluster.tepal(&["volume", "rm", "v"]).succeeded();
    assert_eq!(keys()["rows"], json!([]));
}

#[test]
fn a_file_says_keys_of_volumes_and_is_printed_with_them() {
    let encrypting = up();
    let file = encrypting.cluster.folder().join("volumes.toml");
    let write = |key: &str| {
        std::fs::write(&file, format!("[[volume]]\nname = \"v\"\nsize = \"1M\"\nkey = \"{key}\"\n")).expect("space");
    };
    write("main");
    let path = file.to_str().expect("text");
    let said = encrypting.run(&["apply", path]).succeeded();
    assert!(said.contains("encrypted by key main"), "{said}");
    let printed = encrypting.run(&["show", "--as", "toml"]).succeeded();
    assert!(printed.contains("key = \"main\""), "{printed}");
    let said = encrypting.run(&["apply", path]).succeeded();
    assert!(!said.contains("volume v"), "{said}");
    write("other");
    let said = encrypting.run(&["apply", path]).refused(1);
    assert!(said.contains("`tepal volume rekey v other`"), "{said}");
}
