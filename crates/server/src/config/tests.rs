use super::*;
use std::sync::Arc;

fn minimal() -> Settings {
    Settings { data: Some("/data".into()), ..Settings::default() }
}

fn drive(path: &str) -> DriveSettings {
    DriveSettings::Path(path.into())
}

#[test]
fn a_file_with_everything_in_it_is_read() {
    let text = r#"
        data = "/var/lib/tepal"
        create = "home"
        server = "s3"
        site = "cellar"
        listen = ["unix:/run/nbd.sock", "127.0.0.1:10809"]
        api = "127.0.0.1:7117"
        drives = ["/dev/sdb", { path = "/dev/sdc", log = "/dev/nvme0n1p3" }]
        pool = "fast"
        replace_after = "90s"
        emulate = "hdd"
        data_threads = 2
        log_file = "/var/log/tepal.log"
        insecure = false
        require_tls = true
        names = ["nas.example", "10.0.0.1"]
    "#;
    let config = Config::new(Settings::parse(text).expect("settings")).expect("a config");
    assert_eq!(config.server, Some(ServerId(3)));
    assert_eq!((config.create.as_deref(), config.site.as_deref()), (Some("home"), Some("cellar")));
    assert_eq!(
        config.listen.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["unix:/run/nbd.sock", "127.0.0.1:10809"]
    );
    let sdc = DrivePath { path: "/dev/sdc".into(), log: Some("/dev/nvme0n1p3".into()) };
    assert_eq!(config.drives, [DrivePath { path: "/dev/sdb".into(), log: None }, sdc]);
    assert_eq!((config.pool.as_str(), config.data_threads), ("fast", 2));
    assert_eq!(config.replace_after, Duration::from_secs(90));
    assert_eq!(config.emulate, Some("hdd".parse().expect("a model")));
    let names = vec!["nas.example".to_owned(), "10.0.0.1".to_owned()];
    assert_eq!(config.privacy, Privacy { insecure: false, require_tls: true, names, is_open: false });
}

#[test]
fn a_mistake_in_a_file_is_refused_with_its_line() {
    for (text, line, said) in [
        ("data = \"/d\"\ncolour = \"red\"\n", 2, "unknown field `colour`"),
        ("data = \"/d\"\n\n\ndata = \"/e\"\n", 4, "duplicate"),
        ("data = 7\n", 1, "expected"),
        ("data_threads = \"many\"\n", 1, "expected"),
        ("data_threads = 99999999999999999999999\n", 1, ""),
        ("server = \"s1\"\ndrives = [\"/a\",\n  { path = \"/b\", speed = 3 }]\n", 2, "a drive is a path"),
        ("listen = \"unix:/x\"\n", 1, "expected a sequence"),
        ("[data\n", 1, ""),
        ("\u{0}", 1, ""),
    ] {
        let (found, reason) = Settings::parse(text).expect_err(text);
        assert_eq!(found, line, "{text:?}: {reason}");
        assert!(reason.contains(said) && !reason.contains('\n'), "{text:?}: {reason}");
    }
}

#[test]
fn settings_that_a_server_cannot_run_with_are_refused_one_by_one() {
    let cases: Vec<(Settings, &str)> = vec![
        (Settings::default(), "data is missing"),
        (Settings { data: Some("".into()), ..minimal() }, "empty"),
        (Settings { data: Some("/a\0b".into()), ..minimal() }, "zero byte"),
        (Settings { data: Some("x".repeat(5000).into()), ..minimal() }, "at most 4095"),
        (Settings { replace_after: Some("10".into()), ..minimal() }, "'10' is not a time"),
        (Settings { replace_after: Some("999ms".into()), ..minimal() }, "from 1 s"),
        (Settings { server: Some("one".into()), ..minimal() }, "'one' is not a server id"),
        (Settings { join: Some(vec!["s1".into()]), ..minimal() }, "not an address of a server"),
        (Settings { join: Some(vec!["127.0.0.1:0".into()]), ..minimal() }, "not an address of a server"),
        (Settings { join: Some(vec!["h:1".into()]), create: Some("c".into()), ..minimal() }, "leave one out"),
        (Settings { site: Some("the cellar".into()), ..minimal() }, "'the cellar' is not a name"),
        (Settings { peers: Some("127.0.0.1:0".into()), ..minimal() }, "name a port"),
        (Settings { peers: Some(format!("unix:/{}", "s".repeat(107))), ..minimal() }, "too long"),
        (Settings { listen: Some(vec!["nowhere".into()]), ..minimal() }, "not an address"),
        (Settings { listen: Some(vec![format!("unix:/{}", "s".repeat(107))]), ..minimal() }, "at most 107"),
        (Settings { listen: Some(vec!["unix:/a".into(), "unix:/a".into()]), ..minimal() }, "twice"),
        (Settings { names: Some(vec!["a b".into()]), ..minimal() }, "'a b' is no name"),
        (Settings { api: Some("localhost".into()), ..minimal() }, "not an address"),
        (Settings { emulate: Some("floppy".into()), ..minimal() }, "no drive model"),
        (Settings { data_threads: Some(0), ..minimal() }, "not a number from 1"),
        (Settings { data_threads: Some(-1), ..minimal() }, "not a number from 1"),
        (Settings { data_threads: Some(i64::MAX), ..minimal() }, "not a number from 1"),
        (Settings { drives: Some(vec![drive("/a"), drive("/b"), drive("/a")]), ..minimal() }, "/a is given twice"),
        (Settings { drives: Some(vec![drive("/a\0")]), ..minimal() }, "zero byte"),
    ];
    for (settings, said) in cases {
        let error = Config::new(settings.clone()).expect_err(&format!("{settings:?}")).to_string();
        assert!(error.contains(said), "{settings:?}: {error}");
    }
}

#[test]
fn clients_of_other_machines_need_tls_unless_the_word_insecure_is_said() {
    let requires = |address: &str, insecure, require_tls| {
        let (listen, insecure, require_tls) = (Some(vec![address.to_owned()]), Some(insecure), Some(require_tls));
        let config = Config::new(Settings { listen, insecure, require_tls, ..minimal() }).expect("allowed");
        assert_eq!(config.protection_of(&config.listen[0], Arc::new(|| None)).is_required, config.wants_tls());
        config.wants_tls()
    };
    for (address, wide) in [("0.0.0.0:1", true), ("[::]:1", true), ("127.0.0.1:1", false), ("[::1]:1", false)] {
        assert_eq!(requires(address, false, false), wide, "{address}");
        assert!(!requires(address, true, false) && requires(address, false, true), "{address}");
    }
    let config = Config::new(Settings { listen: Some(vec!["unix:/s".into()]), require_tls: Some(true), ..minimal() });
    let config = config.expect("allowed");
    assert!(
        !config.protection_of(&config.listen[0], Arc::new(|| None)).is_required,
        "the system decides who reaches it"
    );
    let open = |api: &str| {
        let settings = Settings { api: Some(api.into()), insecure: Some(true), ..minimal() };
        Config::new(settings).expect("allowed").privacy.is_open
    };
    assert_eq!([open("10.0.0.1:80"), open("127.0.0.1:80")], [true, false], "whether status warns of it");
}

#[test]
fn a_certificate_is_for_all_addresses_of_a_server() {
    let listen = Some(vec!["10.1.2.3:10809".to_owned(), "0.0.0.0:10810".to_owned()]);
    let settings = Settings { listen, names: Some(vec!["nas.example".to_owned()]), ..minimal() };
    let names = Config::new(settings).expect("a config").machine_names();
    for name in ["10.1.2.3", "127.0.0.1", "::1", "localhost", "nas.example"] {
        assert_eq!(names.iter().filter(|one| *one == name).count(), 1, "{name}: {names:?}");
    }
    assert!(!names.contains(&"0.0.0.0".to_owned()));
}

#[test]
fn other_servers_find_a_server_in_its_data_folder_unless_its_path_is_too_long_for_a_socket() {
    let of = |data: &str| Settings { data: Some(data.into()), ..Settings::default() };
    let peers = |settings| Config::new(settings).map(|config| config.peers);
    assert_eq!(peers(of("/data")).expect("a config"), Some(Endpoint::Unix("/data/peers.sock".into())));
    let long = format!("/{}", "d".repeat(100));
    assert_eq!(peers(of(&long)).expect("a config"), None, "it may serve alone");
    let joins = Settings { join: Some(vec!["h:1".into()]), ..of(&long) };
    assert!(matches!(peers(joins), Err(ConfigError::LongPeerPath(_))));
}

#[test]
fn flags_win_over_the_file() {
    let file = Settings { pool: Some("slow".into()), server: Some("s2".into()), ..minimal() };
    let flags = Settings { pool: Some("fast".into()), ..Settings::default() };
    let config = Config::new(flags.or(file)).expect("a config");
    assert_eq!((config.pool.as_str(), config.server, config.data), ("fast", Some(ServerId(2)), PathBuf::from("/data")));
}

#[test]
fn paths_in_a_file_are_relative_to_its_folder() {
    let folder = std::env::temp_dir().join(format!("tepal-config-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("tepal.toml");
    std::fs::write(&file, "data = \"d\"\ndrives = [\"/abs\", \"rel\"]\nlisten = [\"unix:nbd.sock\"]\n")
        .expect("a file");
    let config = Settings::read(&file).map(Config::new).expect("settings").expect("a config");
    std::fs::remove_dir_all(&folder).expect("ours");
    assert_eq!(config.data, folder.join("d"));
    assert_eq!(config.drives[1].path, folder.join("rel"));
    assert_eq!(config.drives[0].path, PathBuf::from("/abs"));
    assert_eq!(config.listen, [Endpoint::Unix(folder.join("nbd.sock"))]);
}
