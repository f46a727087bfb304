use super::*;

fn at(line: usize, column: usize) -> At {
    At { line, column }
}

/// Of the only volume.
fn plexes(wanted: &Wanted) -> &[WantedPlex] {
    match &wanted.volumes[..] {
        [WantedVolume { content: Content::Plexes(plexes), .. }] => plexes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_isnt_said_is_left_open_and_the_last_drive_serves() {
    let wanted =
        parse("drive a device /dev/da3h\nvolume v\n  plex org concat\n    sd\n sd length 0\n sd len max drive b\n")
            .unwrap();
    let found: Vec<_> = plexes(&wanted)[0].subdisks.iter().map(|disk| (disk.drive.as_str(), disk.length)).collect();
    assert_eq!(found, [("a", None), ("a", None), ("b", None)]);
}

#[test]
fn names_offsets_and_organizations_are_read() {
    let text = "vol v setupstate readpol prefer v.p1\n\
        plex name left org striped 512k volume v\n\
        plex org raid5 1024s\n\
        subdisk name l0 length 512m drive a driveoffset 265s plexoffset 1m plex left\n\
        sd drive b size 10m plex v.p1 retryerrors state up # as printed\n";
    let wanted = parse(text).unwrap();
    let [left, right] = plexes(&wanted) else { panic!("{wanted:?}") };
    assert_eq!((left.name.as_deref(), left.organization), (Some("left"), Organization::Striped { stripe: 512 << 10 }));
    assert_eq!((right.name.as_deref(), right.organization), (None, Organization::Raid5 { stripe: 512 << 10 }));
    let disk = &left.subdisks[0];
    let found = (disk.name.as_deref(), disk.length, disk.drive_offset, disk.plex_offset);
    assert_eq!(found, (Some("l0"), Some(512 << 20), Some(265 * 512), Some(1 << 20)));
    assert_eq!(right.subdisks[0].length, Some(10 << 20));
    assert_eq!(wanted.notes[0].at, at(1, 18), "{:?}", wanted.notes);
}

#[test]
fn a_stripe_of_half_blocks_is_rounded_up_and_said() {
    let wanted = parse("volume v\nplex org striped 279k\nsd drive a\n").unwrap();
    assert_eq!(plexes(&wanted)[0].organization, Organization::Striped { stripe: 280 << 10 });
    assert!(wanted.notes[0].text.contains("279K is taken as 280K") && wanted.notes[0].at == at(2, 18));
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    for (text, place, said) in [
        ("drvie a device /dev/x", at(1, 1), "begins with drive, volume, plex or sd"),
        ("drive", at(1, 6), "wants something after it"),
        ("drive a", at(1, 8), "wants a device"),
        ("drive a device", at(1, 15), "wants something after it"),
        ("drive a device da3h", at(1, 16), "absolute path"),
        ("drive a/b device /dev/x", at(1, 7), "use 1 to 128"),
        ("drive a device /dev/x spare", at(1, 23), "isn't known in a drive line"),
        ("drive a device /dev/x\ndrive a device /dev/y", at(2, 1), "defined already, on line 1, column 1"),
        ("drive a device /dev/x\n drive b device /dev/x", at(2, 17), "is drive a's already"),
        ("volume v\nvolume v", at(2, 1), "defined already"),
        ("volume v plex p", at(1, 10), "line of its own"),
        ("volume v\n", at(1, 1), "has no plex"),
        ("plex org concat", at(1, 1), "no volume line"),
        ("volume v\nplex", at(2, 5), "wants org"),
        ("volume v\nplex org", at(2, 9), "wants something after it"),
        ("volume v\nplex org raid4 64k", at(2, 10), "use raid5"),
        ("volume v\nplex org linear", at(2, 10), "concat, striped or raid5"),
        ("volume v\nplex org striped", at(2, 17), "wants something after it"),
        ("volume v\nplex org striped x", at(2, 18), "a whole number of bytes"),
        ("volume v\nplex org striped 0", at(2, 18), "at least 4k"),
        ("volume v\nplex org concat 64k", at(2, 17), "isn't known in a plex line"),
        ("volume v\nplex org concat", at(2, 1), "no subdisk"),
        ("volume v\nplex org concat volume w", at(2, 24), "before those of its plexes"),
        ("volume v\nsd drive a", at(2, 1), "no plex line"),
        ("volume v\nplex org concat\nsd length 1m", at(3, 13), "wants a drive"),
        ("volume v\nplex org concat\nsd drive a length 1.5g", at(3, 19), "a whole number of bytes"),
        ("volume v\nplex org concat\nsd drive a plex q", at(3, 17), "before those of its subdisks"),
        ("volume v\nplex name p org concat\nplex name p org concat", at(3, 1), "defined already"),
    ] {
        let wrong = parse(text).expect_err(text);
        assert!(wrong.at == place && wrong.text.contains(said), "{text}: {wrong}");
    }
}
