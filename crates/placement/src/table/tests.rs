//! That tables keep their promises, and that as little is moved as must be.

use super::fair::{ONE, shares};
use super::*;
use crate::choose_tests::{equal, layout};
use crate::share::mix;
use proptest::prelude::*;
use std::collections::BTreeMap;
use tepal_model::ServerId;

const SIZES: [u64; 4] = [1, 2, 4, 16];

/// Drives of mixed sizes, four on a server, or so many that there are five servers.
fn mixed(drives: usize) -> Vec<Candidate<'static>> {
    let servers = (drives / 4).max(5.min(drives));
    let drive = |number: usize| drive(number, SIZES[(mix(number as u64) % 4) as usize], number % servers);
    (0..drives).map(drive).collect()
}

fn drive(number: usize, size: u64, server: usize) -> Candidate<'static> {
    let id = DriveId(mix(number as u64));
    Candidate { drive: id, server: ServerId(server as u32 + 1), site: None, capacity: size << 40 }
}

fn several(drives: &[Candidate<'_>], text: &str, count: u64) -> Vec<Table> {
    (1..=count).map(|number| allot(drives, &layout(text), number).unwrap()).collect()
}

fn carry_out(tables: &mut [Table], moves: &[Move]) {
    moves.iter().for_each(|change| assert!(tables[change.table].change(change), "{change:?}"));
}

fn counts(tables: &[Table]) -> BTreeMap<DriveId, i64> {
    let mut counts = BTreeMap::new();
    tables.iter().flat_map(|table| table.columns.iter().flatten()).for_each(|id| *counts.entry(*id).or_default() += 1);
    counts
}

/// What each drive is due and has, of one or several tables, in parts of [`ONE`].
fn dues(tables: &[Table], drives: &[Candidate<'_>]) -> Vec<(DriveId, i64, i64)> {
    let (positions, counts) = (Drives::new(drives, tables), counts(tables));
    let mut due = vec![0; positions.len()];
    for table in tables {
        let shares = shares(&positions, table.columns.len(), table.copies(), table.domain);
        due.iter_mut().zip(shares).for_each(|(sum, share)| *sum += share);
    }
    let ids = (0..positions.len() as u32).map(|position| positions.id(position));
    ids.zip(due).map(|(id, due)| (id, due, counts.get(&id).copied().unwrap_or(0) * ONE)).collect()
}

fn check_apart(table: &Table, drives: &[Candidate<'_>]) {
    let positions = Drives::new(drives, std::slice::from_ref(table));
    for holders in &table.columns {
        let domains: BTreeSet<u32> =
            holders.iter().map(|id| positions.domain(table.domain, positions.position(*id))).collect();
        assert_eq!(domains.len(), table.copies(), "{holders:?} share a {}", table.domain);
    }
}

/// All is where it may be, apart, and even, and nothing more is asked for.
fn check_settled(tables: &[Table], drives: &[Candidate<'_>]) {
    tables.iter().for_each(|table| check_apart(table, drives));
    for of in tables.iter().map(std::slice::from_ref).chain([tables]) {
        for (id, due, has) in dues(of, drives) {
            assert!((has - due).abs() <= ONE.max(due / 20), "{id}: {} of {}", has / ONE, due as f64 / ONE as f64);
        }
    }
    assert_eq!(moves(tables, drives), []);
}

/// The fewest copies that must be moved to where they may be and into the ranges, in any one table and over all.
fn fewest(tables: &[Table], drives: &[Candidate<'_>]) -> i64 {
    let of = |tables: &[Table]| {
        let (mut too_many, mut too_few) = (0, 0);
        for (_, due, has) in dues(tables, drives) {
            let tolerance = if due == 0 { 0 } else { ONE.max(due / 20) };
            too_many += (has - (due + tolerance) / ONE * ONE).max(0) / ONE;
            too_few += ((due - tolerance + ONE - 1) / ONE * ONE - has).max(0) / ONE;
        }
        i64::max(too_many, too_few)
    };
    i64::max(tables.iter().map(|table| of(std::slice::from_ref(table))).sum(), of(tables))
}

#[test]
fn a_new_table_gives_each_drive_its_share_and_each_leads_its_part() {
    for drives in [1, 2, 3, 4, 7, 12, 40, 100, 1_000, 10_000] {
        for text in ["stripe", "mirror:2", "mirror:3", "mirror:2;domain=drive"] {
            for drives in [equal(1, drives), equal(drives, 1), mixed(drives)] {
                let Ok(table) = allot(&drives, &layout(text), 3) else { continue };
                check_apart(&table, &drives);
                let mut leads: BTreeMap<DriveId, i64> = BTreeMap::new();
                table.columns.iter().for_each(|holders| *leads.entry(holders[0]).or_default() += 1);
                for (id, due, has) in dues(std::slice::from_ref(&table), &drives) {
                    let who = format!("{id} of {} with {text}", drives.len());
                    assert!((has - due).abs() < ONE, "{who}: {} of {}", has / ONE, due as f64 / ONE as f64);
                    let (leads, copies) = (leads.get(&id).copied().unwrap_or(0), table.copies() as i64);
                    let has = has / ONE;
                    assert!(
                        (has / copies..=(has + copies - 1) / copies).contains(&leads),
                        "{who}: leads {leads} of {has}"
                    );
                }
                assert_eq!(moves(&[table], &drives), [], "{} drives, {text}", drives.len());
            }
        }
    }
}

#[test]
fn in_a_small_pool_each_drives_part_of_one_volume_is_exact_to_a_twentieth() {
    for sizes in [
        &[1, 2, 4, 16][..],
        &[1, 1, 1],
        &[7, 10, 11],
        &[3, 4, 4, 6, 6],
        &[1, 2, 2, 3, 5, 8],
        &[2, 3, 3, 4, 4, 4, 5],
        &[1, 1, 2, 2, 4, 4, 8, 16],
    ] {
        let drives: Vec<_> = (1..).zip(sizes).map(|(number, size)| drive(number, *size, number)).collect();
        for text in ["stripe", "mirror:2", "mirror:3"] {
            for table in several(&drives, text, 30) {
                for (id, due, has) in dues(&[table], &drives) {
                    let case = format!("{id} of {sizes:?} with {text}: {} of {}", has / ONE, due as f64 / ONE as f64);
                    assert!((has - due).abs() * 20 <= due, "{case}");
                }
            }
        }
    }
}

#[test]
fn tables_of_several_volumes_come_to_an_even_whole() {
    for (drives, volumes) in [(4, 30), (30, 20), (300, 60), (1_000, 200)] {
        let drives = mixed(drives);
        let tables = several(&drives, "mirror:2", volumes);
        for (id, due, has) in dues(&tables, &drives) {
            let off = (has - due).abs();
            assert!(off <= (3 * ONE).max(due / 20), "{id} has {} of {}", has / ONE, due as f64 / ONE as f64);
        }
    }
}

/// Four copies of a set's columns would be on one drive if it were left to chance.
#[test]
fn the_columns_of_a_set_are_led_by_as_many_drives_as_can_be() {
    for (drives, text) in [(2, "mirror:2"), (4, "mirror:2"), (6, "stripe"), (8, "mirror:3"), (40, "mirror:2")] {
        let table = allot(&equal(drives, 1), &layout(text), 1).unwrap();
        let width = table.geometry.width() as usize;
        let led = |set: &[ColumnHolders]| set.iter().map(|holders| holders[0]).collect::<BTreeSet<_>>().len();
        let led: usize = table.columns.chunks(width).map(led).sum();
        let most = table.columns.len();
        assert!(led * 100 >= most * 93, "{drives} drives, {text}: {led} of {most}");
    }
}

/// So all survivors share the load of a server that fails.
#[test]
fn each_server_shares_columns_with_all_others() {
    for servers in [3, 4, 6, 8] {
        let table = allot(&equal(servers, 3), &layout("mirror:2"), 1).unwrap();
        let mut shared: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        for holders in &table.columns {
            let (one, other) = (holders[0].0 / 100, holders[1].0 / 100);
            *shared.entry((one.min(other), one.max(other))).or_default() += 1;
        }
        let (least, most) = (shared.values().min().unwrap(), shared.values().max().unwrap());
        assert_eq!(shared.len(), servers * (servers - 1) / 2);
        assert!(most - least <= 2, "{servers} servers: {shared:?}");
    }
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Added,
    AddedServer,
    Drained,
    Lost,
}

fn changed(before: &[Candidate<'static>], change: Change) -> Vec<Candidate<'static>> {
    let mut after = before.to_vec();
    let (number, middle) = (before.len(), before.len() / 2);
    match change {
        Change::Added => after.push(drive(number + 1, 4, 0)),
        Change::AddedServer => after.extend((1..4).map(|nth| drive(number + nth, 4, number))),
        Change::Drained => after[middle].capacity = 0,
        Change::Lost => {
            after.remove(middle);
        }
    }
    after
}

#[test]
fn little_more_is_moved_than_must_be() {
    let changes = [Change::Added, Change::AddedServer, Change::Drained, Change::Lost];
    for (drives, volumes) in
        [(10, 1), (10, 12), (100, 1), (100, 20), (1_000, 1), (1_000, 60), (10_000, 1), (10_000, 12)]
    {
        let before = mixed(drives);
        for text in ["stripe", "mirror:2", "mirror:3"] {
            let mut made = several(&before, text, volumes);
            let first = moves(&made, &before);
            carry_out(&mut made, &first);
            check_settled(&made, &before);
            for change in changes {
                let (mut tables, after) = (made.clone(), changed(&before, change));
                let fewest = fewest(&tables, &after);
                let moves = moves(&tables, &after);
                let case = format!("{change:?}, {drives} drives, {volumes} {text}: {} for {fewest}", moves.len());
                assert!(moves.len() as i64 * 10 <= fewest * 11, "{case}");
                carry_out(&mut tables, &moves);
                check_settled(&tables, &after);
            }
        }
    }
}

#[test]
fn what_is_on_drives_that_shall_hold_nothing_goes_first() {
    let before = equal(4, 2);
    let tables = several(&before, "mirror:2", 1);
    let mut after = before.clone();
    after[0].capacity = 0;
    after.push(drive(1, 1, 9));
    let moves = moves(&tables, &after);
    let held = counts(&tables)[&before[0].drive] as usize;
    assert!(moves[..held].iter().all(|change| change.from == before[0].drive), "{moves:?}");
    assert!(moves[held..].iter().all(|change| change.from != before[0].drive), "{moves:?}");
}

/// Story: a server of two is drained. Its copies have nowhere to go, and stay until there's another server.
#[test]
fn a_copy_that_has_nowhere_to_go_stays() {
    let mut drives = equal(2, 2);
    let mut tables = several(&drives, "mirror:2;domain=server", 1);
    drives[0].capacity = 0;
    drives[1].capacity = 0;
    assert_eq!(moves(&tables, &drives), []);
    drives.push(drive(1, 1, 8));
    let moves = moves(&tables, &drives);
    assert_eq!(moves.len(), 64);
    carry_out(&mut tables, &moves);
    check_settled(&tables, &drives);
}

/// Story: a drive was carried to the server that has the other copies.
#[test]
fn copies_that_came_into_one_domain_are_parted() {
    let mut drives = equal(3, 1);
    let mut tables = several(&drives, "mirror:2", 1);
    drives.push(drive(1, 1, 3));
    drives[1].server = drives[0].server;
    let moves = moves(&tables, &drives);
    carry_out(&mut tables, &moves);
    check_settled(&tables, &drives);
}

#[test]
fn chained_keeps_a_column_for_each_drive_and_copies_on_neighbours() {
    let drives = equal(4, 2);
    let (table, chosen) =
        (allot(&drives, &layout("chained"), 9).unwrap(), choose(&drives, &layout("chained")).unwrap());
    assert_eq!((table.geometry.columns(), table.geometry.width(), table.domain), (8, 8, chosen.domain));
    for (column, holders) in table.columns.iter().enumerate() {
        assert_eq!(holders[..], [chosen.drives[column], chosen.drives[(column + 1) % 8]]);
    }
}

#[test]
fn what_a_layout_asks_for_and_the_drives_have_not_is_refused_as_ever() {
    for (candidates, text) in [
        (vec![], "stripe"),
        (vec![drive(1, 0, 1)], "stripe"),
        (equal(1, 3), "mirror:2;domain=server"),
        (equal(2, 1), "mirror:3"),
        (equal(2, 2), "mirror:2;domain=site"),
        (equal(1, 2), "chained"),
    ] {
        let used: Vec<_> = candidates.iter().filter(|drive| drive.capacity > 0).copied().collect();
        assert_eq!(
            allot(&candidates, &layout(text), 1).unwrap_err(),
            choose(&used, &layout(text)).unwrap_err(),
            "{text}"
        );
    }
}

/// Changing these means that servers of two versions would come to different maps: don't, unless the command that makes a
/// volume gets a new version.
#[test]
fn tables_are_as_they_were_in_the_first_release() {
    let digest = |drives: &[Candidate<'_>], text: &str| {
        let table = allot(drives, &layout(text), 5).unwrap();
        table.columns.iter().flatten().fold(0, |sum, drive| pair(sum, drive.0))
    };
    let found = [
        digest(&equal(1, 1), "stripe"),
        digest(&equal(3, 2), "mirror:2"),
        digest(&mixed(50), "mirror:3"),
        digest(&equal(4, 2), "chained"),
    ];
    let known =
        [6_114_195_598_392_742_790, 7_735_443_907_139_648_057, 7_610_455_744_564_418_300, 16_511_482_287_563_829_494];
    assert_eq!(found, known);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Moves are refused, drives come and go in between: what is done is never undone, and it ends.
    #[test]
    fn some_moves_in_any_order_lead_there_too(
        drives in 3usize..25,
        volumes in 1u64..4,
        text in prop::sample::select(vec!["stripe", "mirror:2", "mirror:3;domain=drive"]),
        seed in any::<u64>(),
    ) {
        let before = mixed(drives);
        let mut tables = several(&before, text, volumes);
        let mut pool = before.clone();
        let mut chance = seed;
        let mut next = |below: u64| { chance = mix(chance); chance % below };
        for round in 0..3 {
            let number = drives + 10 * round + next(10) as usize;
            match next(3) {
                0 => pool.push(drive(1_000 + number, SIZES[next(4) as usize], next(6) as usize)),
                1 => { let at = next(pool.len() as u64) as usize; pool[at].capacity = 0 }
                _ => { let at = next(pool.len() as u64) as usize; pool.remove(at); }
            }
            pool.sort_by_key(|drive| drive.drive);
            pool.dedup_by_key(|drive| drive.drive);
            let usable: BTreeSet<ServerId> = pool.iter().filter(|drive| drive.capacity > 0).map(|drive| drive.server).collect();
            prop_assume!(usable.len() > tables[0].copies());
            let first = moves(&tables, &pool).len();
            let mut done = 0;
            loop {
                let asked = moves(&tables, &pool);
                if asked.is_empty() {
                    break;
                }
                let some: Vec<Move> = asked.iter().filter(|_| next(3) == 0).copied().collect();
                let mut columns = BTreeSet::new();
                for change in some.iter().rev().filter(|change| columns.insert((change.table, change.column))) {
                    prop_assert!(tables[change.table].change(change));
                    done += 1;
                }
                tables.iter().for_each(|table| {
                    let distinct = |holders: &ColumnHolders| holders.iter().collect::<BTreeSet<_>>().len();
                    assert!(table.columns.iter().all(|holders| distinct(holders) == table.copies()));
                });
                prop_assert!(done <= first + first / 4 + 8, "{} moves instead of {}", done, first);
            }
        }
    }
}
