use super::*;
use tempfile::TempDir;
use tepal_metadata::{DEFAULT_POOL, Metadata};
use tepal_model::{ClusterId, ServerId};

/// Of each drive.
const SIZE: u64 = 1 << 40;

struct Cluster {
    metadata: Metadata,
    _folder: TempDir,
}

/// Servers with so many drives, of which those of server 2 are 21, 22 and so on, and a volume over all of them.
async fn cluster(drives: &[u64], layout: &str) -> Cluster {
    let folder = tempfile::tempdir().expect("a folder");
    let metadata =
        Metadata::create(folder.path(), ClusterId(1), "test", ServerId(1), "h:1", 0).await.expect("a cluster");
    let cluster = Cluster { metadata, _folder: folder };
    for (server, &count) in (1..).zip(drives) {
        cluster.add(server, count).await;
    }
    let (name, layout, pool) = ("v".to_owned(), Some(layout.to_owned()), DEFAULT_POOL.to_owned());
    cluster.done(Command::CreateVolume { name, size: 1 << 30, layout, pool }).await;
    cluster
}

impl Cluster {
    async fn done(&self, command: Command) {
        let said = format!("{command:?}");
        self.metadata.propose(command).await.unwrap_or_else(|error| panic!("{said}: {error}"));
    }

    /// Adds so many drives to a server, which is there from then on.
    async fn add(&self, server: u32, count: u64) {
        let id = ServerId(server);
        if !self.state().servers.contains_key(&id) {
            let folder = u64::from(server);
            self.done(Command::JoinServer { folder, address: format!("h:{server}"), claim: None }).await;
            self.done(Command::ServerStarted { id, incarnation: 0, boot: 1 }).await;
        }
        let before = self.state().drives_of_server(id).count() as u64;
        for number in before + 1..=before + count {
            self.add_drive(u64::from(server) * 10 + number, SIZE, false).await;
        }
    }

    async fn add_drive(&self, id: u64, capacity: u64, spare: bool) {
        let (server, pool, path) = (ServerId((id / 10) as u32), DEFAULT_POOL.to_owned(), format!("/d{id}"));
        self.done(Command::AddDrive { id: DriveId(id), server, pool, path, capacity, spare }).await;
    }

    async fn becomes(&self, id: u64, to: DriveState) {
        let expected_view = Some(self.state().drives[&DriveId(id)].state_view);
        self.done(Command::SetDriveState { id: DriveId(id), to, reason: "a test".to_owned(), expected_view }).await;
    }

    async fn is_for(&self, id: u64, to: DriveUse) {
        self.done(Command::SetDriveUse { id: DriveId(id), to }).await;
    }

    fn state(&self) -> std::sync::Arc<State> {
        self.metadata.state()
    }

    /// What is done next if nothing is known of drives' space, and these have been away for too long.
    fn next(&self, gone: &[u64]) -> Vec<Command> {
        self.next_as(gone, &Moves::default(), Instant::now())
    }

    fn next_as(&self, gone: &[u64], known: &Moves, now: Instant) -> Vec<Command> {
        next(&self.state(), &gone.iter().copied().map(DriveId).collect(), (known, now))
    }

    /// Whence and whither copies are moved next, the same once only. Nothing else is done.
    fn ways(&self, known: &Moves) -> BTreeSet<(u64, u64)> {
        let way = |command| match command {
            Command::BeginMove { from, to, .. } => (from.0, to.0),
            other => panic!("{other:?}"),
        };
        self.next_as(&[], known, Instant::now()).into_iter().map(way).collect()
    }

    /// Whoever leads a column says that a drive has everything, of all that join.
    async fn finish(&self) {
        for (map, column, JoinRecord { to, since, .. }) in joins(&self.state()) {
            let view = self.state().view();
            self.done(Command::FinishMove { map, column, to, since, view }).await;
        }
    }

    /// Does what is to be done until there's nothing. How many moves that took.
    async fn settle(&self, gone: &[u64]) -> usize {
        let mut moves = 0;
        loop {
            let commands = self.next(gone);
            if commands.is_empty() {
                return moves;
            }
            for command in commands {
                moves += usize::from(matches!(command, Command::BeginMove { .. }));
                self.done(command).await;
            }
            self.finish().await;
        }
    }

    /// How many copies each drive has that has any.
    fn held(&self) -> BTreeMap<u64, u64> {
        let mut held = BTreeMap::new();
        let state = self.state();
        let holders = state.maps.values().flat_map(|map| &map.columns).flat_map(|column| &column.holders);
        holders.for_each(|holder| *held.entry(holder.drive.0).or_default() += 1);
        held
    }

    /// No two copies of a column are on one server.
    fn check_apart(&self) {
        for column in self.state().maps.values().flat_map(|map| &map.columns) {
            let servers: BTreeSet<u64> = column.holders.iter().map(|holder| holder.drive.0 / 10).collect();
            assert_eq!(servers.len(), column.holders.len(), "{column:?}");
        }
    }
}

/// Of drives that volumes have half filled, but for those that are full.
fn with_full(state: &State, full: &[u64]) -> Moves {
    let used = |id: &DriveId| if full.contains(&id.0) { SIZE } else { SIZE / 2 };
    let space = |id: &DriveId| (*id, DriveSpace { capacity: SIZE, used: used(id) });
    Moves { spaces: state.drives.keys().map(space).collect(), ..Moves::default() }
}

#[tokio::test(flavor = "current_thread")]
async fn a_drive_that_is_added_gets_its_share_a_few_copies_at_a_time_and_no_more_is_moved() {
    let cluster = cluster(&[1, 1, 1], "mirror:2").await;
    assert_eq!(cluster.next(&[]), [], "all is even");
    let before = cluster.held();
    cluster.add(4, 1).await;
    assert!(cluster.ways(&Moves::default()).iter().all(|(_, to)| *to == 41));
    assert_eq!(cluster.next(&[]).len(), AT_ONCE);
    let moves = cluster.settle(&[]).await;
    let held = cluster.held();
    let total: u64 = held.values().sum();
    assert!(held.len() == 4 && held.values().all(|has| has.abs_diff(total / 4) <= total / 80), "{held:?}");
    assert_eq!(moves as u64, held[&41], "of {before:?}");
    cluster.check_apart();
}

#[tokio::test(flavor = "current_thread")]
async fn what_is_to_hold_nothing_is_emptied() {
    for (text, command, is_forgotten) in [
        ("a drive is drained", Command::SetDriveUse { id: DriveId(11), to: DriveUse::Draining }, false),
        ("one is to be a spare", Command::SetDriveUse { id: DriveId(11), to: DriveUse::Spare }, false),
        ("its server is drained", Command::SetServerDraining { id: ServerId(1), draining: true }, false),
        ("it's removed", Command::RemoveDrive { id: DriveId(11), force: false }, true),
    ] {
        let cluster = cluster(&[1, 1, 1], "mirror:2").await;
        let held = cluster.held();
        cluster.done(command).await;
        let moves = cluster.settle(&[]).await;
        assert_eq!(moves as u64, held[&11], "{text}");
        assert!(cluster.held().keys().eq([&21, &31]), "{text}");
        cluster.check_apart();
        assert_eq!(!cluster.state().drives.contains_key(&DriveId(11)), is_forgotten, "{text}");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn what_a_lost_drive_had_is_made_anew_where_there_is_room() {
    let cluster = cluster(&[1, 1, 1, 1], "mirror:2").await;
    let lost = cluster.held()[&11];
    cluster.becomes(11, DriveState::Failed).await;
    let to = |known: &Moves| cluster.ways(known).into_iter().map(|(_, to)| to).collect::<BTreeSet<_>>();
    assert_eq!(to(&with_full(&cluster.state(), &[])), [21, 31, 41].into());
    assert_eq!(to(&with_full(&cluster.state(), &[21, 31])), [41].into());
    assert_eq!(to(&with_full(&cluster.state(), &[21, 31, 41])), [].into());
    assert_eq!(cluster.settle(&[]).await as u64, lost);
    assert!(cluster.held().keys().eq([&21, &31, &41]));
    cluster.check_apart();
}

/// Nothing of a drive is moved that serves until it's empty, unless there's room for all of it.
#[tokio::test(flavor = "current_thread")]
async fn a_drained_drive_waits_until_others_have_room_for_all_of_it() {
    let cluster = cluster(&[1, 1, 1], "mirror:2").await;
    cluster.is_for(11, DriveUse::Draining).await;
    assert!(!cluster.ways(&with_full(&cluster.state(), &[])).is_empty());
    assert!(cluster.ways(&with_full(&cluster.state(), &[21])).is_empty());
    cluster.add(4, 1).await;
    assert!(!cluster.ways(&with_full(&cluster.state(), &[21])).is_empty());
}

/// Story: a drive that was gone for good had the only copies of a volume. They were to go to others, that waited for them for ever.
#[tokio::test(flavor = "current_thread")]
async fn what_only_a_lost_drive_had_is_moved_nowhere() {
    let cluster = cluster(&[1, 1, 1], "stripe").await;
    cluster.is_for(11, DriveUse::Draining).await;
    for command in cluster.next(&[]) {
        cluster.done(command).await;
    }
    assert!(joins(&cluster.state()).next().is_some());
    cluster.becomes(11, DriveState::Failed).await;
    let commands = cluster.next(&[]);
    assert!(!commands.is_empty() && commands.iter().all(|command| matches!(command, Command::CancelMove { .. })));
    for command in commands {
        cluster.done(command).await;
    }
    assert_eq!(cluster.next(&[]), []);
}

/// Story: a raid5 volume had lost two of three drives. Its columns joined the new drive and waited, as many as may move to a drive at once,
/// and a mirror beside them that had a whole copy got no second one.
#[tokio::test(flavor = "current_thread")]
async fn what_is_given_up_of_a_code_gets_other_drives() {
    let cluster = cluster(&[1, 1, 1, 1], "ec:2+1").await;
    for drive in [31, 41] {
        cluster.becomes(drive, DriveState::Failed).await;
    }
    cluster.add(5, 1).await;
    let map = MapId(1);
    let lost: Vec<usize> = {
        let state = cluster.state();
        let is_left = |holder: &&HolderRecord| state.drives[&holder.drive].state == DriveState::Up;
        let columns = state.maps[&map].columns.iter().enumerate();
        let lost = columns.filter(|(_, column)| column.holders.iter().filter(is_left).count() == 1);
        lost.map(|(number, _)| number).collect()
    };
    assert!(!lost.is_empty() && !lost.iter().any(|&column| has_enough(&cluster.state(), map, column, DriveId(31))));
    let is_of_lost =
        |command: &Command| matches!(command, Command::BeginMove { column, .. } if lost.contains(&(*column as usize)));
    assert!(!cluster.next(&[]).iter().any(is_of_lost));
    let volume = cluster.state().volume_named("v").expect("it's there").id;
    cluster.done(Command::AcceptLoss { volume, view: 0 }).await;
    assert!(lost.iter().all(|&column| has_enough(&cluster.state(), map, column, DriveId(31))));
    // Each drive takes a few at a time, of any columns.
    while !cluster.next(&[]).iter().any(is_of_lost) {
        let command = cluster.next(&[]).into_iter().next().expect("a move, until none of these is left");
        let Command::BeginMove { map, column, to, .. } = command else { panic!("{command:?}") };
        cluster.done(command).await;
        let (state, view) = (cluster.state(), cluster.state().view());
        let since = state.maps[&map].columns[column as usize].joining.expect("it was just begun").since;
        cluster.done(Command::FinishMove { map, column, to, since, view }).await;
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_column_with_too_few_fragments_takes_no_others_turn() {
    let cluster = cluster(&[1, 1, 1], "ec:2+1").await;
    let (name, layout, pool) = ("w".to_owned(), Some("mirror:2".to_owned()), DEFAULT_POOL.to_owned());
    cluster.done(Command::CreateVolume { name, size: 1 << 30, layout, pool }).await;
    cluster.add(4, 1).await;
    cluster.becomes(11, DriveState::Failed).await;
    let coded = cluster.state().volume_named("v").expect("the first").map;
    let is_of_code = |command: &Command| matches!(command, Command::BeginMove { map, .. } if *map == coded);
    let begun = cluster.next(&[]);
    assert!(begun.iter().any(is_of_code), "two of three fragments are here");
    for command in begun.into_iter().filter(is_of_code) {
        cluster.done(command).await;
    }
    assert!(cluster.ways(&Moves::default()).is_empty(), "the new drive takes no more at a time");
    cluster.becomes(21, DriveState::Missing).await;
    let begun = cluster.next(&[]);
    assert!(!begun.is_empty() && !begun.iter().any(is_of_code), "{begun:?}");
}

/// Story: drives were full, and with them the way to another layout was blocked. A drive was added, and nothing came to it, since nothing
/// was evened out of what was on its way.
#[tokio::test(flavor = "current_thread")]
async fn what_is_on_its_way_to_another_map_is_moved_off_drives_that_are_short_of_room_and_else_not() {
    let cluster = cluster(&[1, 1, 1], "mirror:2").await;
    let (volume, layout) = ("v".to_owned(), Some("mirror:2;extent=4K".to_owned()));
    cluster
        .done(Command::BeginMigration { volume, layout, alone: false, pool: None, range: None, seed: 1, rate: None })
        .await;
    cluster.add(4, 1).await;
    let state = cluster.state();
    let migration = state.migrations.values().next().expect("one is under way").id;
    assert!(asks_for_spaces(&state, &BTreeSet::new(), (&Moves::default(), Instant::now())));
    assert_eq!(cluster.next(&[]), [], "nothing is known of drives");
    for (full, ways) in [(&[][..], &[][..]), (&[11], &[(11, 41)]), (&[11, 31], &[(11, 41), (31, 41)]), (&[11, 41], &[])]
    {
        assert!(cluster.ways(&with_full(&state, full)).into_iter().eq(ways.iter().copied()), "{full:?}");
    }
    cluster.done(Command::PauseMigration { id: migration, paused: true }).await;
    assert!(cluster.ways(&with_full(&state, &[11])).is_empty(), "it waits for nothing");
    cluster.done(Command::PauseMigration { id: migration, paused: false }).await;
    // As long as the drive is full, until it has its share of both maps.
    let (before, known) = (cluster.held(), with_full(&state, &[11]));
    loop {
        let commands = cluster.next_as(&[], &known, Instant::now());
        if commands.is_empty() {
            break;
        }
        for command in commands {
            cluster.done(command).await;
        }
        cluster.finish().await;
    }
    let (after, total) = (cluster.held(), before.values().sum::<u64>());
    assert!(after[&11] < before[&11] && after[&11].abs_diff(total / 4) <= total / 40, "{before:?}, {after:?}");
    assert_eq!((after[&21], after[&31]), (before[&21], before[&31]));
    cluster.check_apart();
}

#[tokio::test(flavor = "current_thread")]
async fn no_copy_goes_where_another_shares_its_server() {
    let cluster = cluster(&[2, 1], "mirror:2").await;
    let had = cluster.held()[&21];
    cluster.becomes(21, DriveState::Failed).await;
    assert_eq!(cluster.next(&[]), [], "all others are on the server of the copies that are left");
    cluster.add(2, 1).await;
    assert!(cluster.ways(&Moves::default()).iter().all(|way| *way == (21, 22)));
    assert_eq!(cluster.settle(&[]).await as u64, had);
    cluster.check_apart();
}

#[tokio::test(flavor = "current_thread")]
async fn a_spare_steps_in_for_a_drive_that_was_lost_the_smallest_that_is_as_large() {
    let cluster = cluster(&[1, 1, 1], "mirror:2").await;
    let held = cluster.held();
    for (id, size) in [(12, 2 * SIZE), (22, SIZE), (32, SIZE / 2)] {
        cluster.add_drive(id, size, true).await;
    }
    assert_eq!(cluster.next(&[]), [], "spares wait");
    cluster.becomes(21, DriveState::Failed).await;
    let step_in = |spare, lost| {
        [
            Command::SetDriveUse { id: DriveId(spare), to: DriveUse::Active },
            Command::SetDriveUse { id: DriveId(lost), to: DriveUse::Draining },
        ]
    };
    assert_eq!(cluster.next(&[]), step_in(22, 21));
    assert_eq!(cluster.settle(&[]).await as u64, held[&21], "from the one to the other alone");
    let after = cluster.held();
    assert!(after.keys().eq([&11, &22, &31]) && after[&22] == held[&21]);
    cluster.becomes(31, DriveState::Missing).await;
    assert_eq!(cluster.next(&[]), [], "it may return");
    assert_eq!(cluster.next(&[31]), step_in(12, 31), "the other is too small");
}

#[tokio::test(flavor = "current_thread")]
async fn a_drive_that_is_away_is_waited_for_and_each_time_anew() {
    let cluster = cluster(&[1, 1, 1], "mirror:2").await;
    const LONG: Duration = Duration::from_secs(600);
    let (mut away, begun) = (Away::new(LONG), Instant::now());
    let mut gone = |after: Duration| away.look(&cluster.state(), begun + after).into_iter().map(|id| id.0).collect();
    cluster.becomes(11, DriveState::Missing).await;
    let none = Vec::<u64>::new();
    assert_eq!((gone(Duration::ZERO), gone(LONG - LOOK)), (none.clone(), none.clone()));
    cluster.becomes(11, DriveState::Behind).await;
    cluster.becomes(21, DriveState::Offline).await;
    assert_eq!(gone(LONG), [11], "it isn't up yet, and the other has just gone");
    cluster.becomes(11, DriveState::Up).await;
    assert_eq!(gone(LONG + LOOK), none);
    cluster.becomes(11, DriveState::Missing).await;
    assert_eq!((gone(LONG * 2 - LOOK), gone(LONG * 2)), (none, vec![21]));
    assert_eq!((cluster.next(&[]), gone(LONG * 3)), (vec![], vec![11, 21]));
    cluster.becomes(21, DriveState::Behind).await;
    assert!(!cluster.next(&[11]).is_empty());
}

#[tokio::test(flavor = "current_thread")]
async fn a_move_to_what_is_to_hold_nothing_any_more_is_called_off_and_a_drive_rests_after_that() {
    let cluster = cluster(&[1, 1, 1], "mirror:2").await;
    cluster.add(4, 1).await;
    let begun = cluster.next(&[]);
    for command in &begun {
        cluster.done(command.clone()).await;
    }
    let (mut known, now) = (Moves::default(), Instant::now());
    known.look(&cluster.state(), now);
    assert_eq!(cluster.next(&[]), [], "it has as many as it gets at a time");
    assert_eq!(cluster.next_as(&[], &known, now + SLOW).len(), AT_ONCE, "what takes so long keeps no others");

    cluster.is_for(41, DriveUse::Draining).await;
    let called_off = cluster.next(&[]);
    assert_eq!(called_off.len(), begun.len());
    for command in called_off {
        assert!(matches!(command, Command::CancelMove { to: DriveId(41), .. }), "{command:?}");
        cluster.done(command).await;
    }
    cluster.is_for(41, DriveUse::Active).await;
    known.look(&cluster.state(), now);
    assert_eq!(cluster.next_as(&[], &known, now), []);
    assert_eq!(cluster.next_as(&[], &known, now + Duration::from_secs(60)), begun);
}

/// While a fragment of a quorum layout moves, the other drives alone answer.
#[tokio::test(flavor = "current_thread")]
async fn fragments_of_a_quorum_move_only_while_enough_others_are_up() {
    let cluster = cluster(&[1, 1, 1, 1, 1, 1], "quorum:1/3,t=1,async").await;
    cluster.becomes(11, DriveState::Failed).await;
    assert!(cluster.settle(&[]).await > 0);
    assert!(cluster.held().keys().eq([&21, &31, &41, &51, &61]));
    cluster.check_apart();
    cluster.is_for(31, DriveUse::Draining).await;
    cluster.becomes(21, DriveState::Missing).await;
    let state = cluster.state();
    let columns = &state.maps[&MapId(1)].columns;
    let begun = cluster.next(&[]);
    let has_missing = |command: &Command| {
        let Command::BeginMove { column, .. } = command else { panic!("{command:?}") };
        columns[*column as usize].is_held_by(DriveId(21))
    };
    assert!(!begun.is_empty() && !begun.iter().any(has_missing), "{begun:?}");
    let waits = columns.iter().any(|column| column.is_held_by(DriveId(21)) && column.is_held_by(DriveId(31)));
    assert!(waits, "some columns have both: {columns:?}");
}

/// Story: a fragment was on its way off a drive that was up when another drive of its column failed for good. Neither drive's word counted,
/// too few others were left, and the move went on for ever.
#[tokio::test(flavor = "current_thread")]
async fn a_move_of_a_quorum_is_called_off_once_too_few_others_are_up() {
    let cluster = cluster(&[1, 1, 1, 1], "quorum:1/3,t=1,async").await;
    cluster.is_for(11, DriveUse::Draining).await;
    for command in cluster.next(&[]) {
        cluster.done(command).await;
    }
    let (map, column, _) = joins(&cluster.state()).next().expect("a move");
    let holders = cluster.state().maps[&map].columns[column as usize].holders.clone();
    let other = holders.iter().find(|holder| holder.drive != DriveId(11)).expect("it has three").drive;
    cluster.becomes(other.0, DriveState::Failed).await;
    let is_it = |command: &Command| matches!(command, Command::CancelMove { column: of, .. } if *of == column);
    assert!(cluster.next(&[]).iter().any(is_it), "{:?}", cluster.next(&[]));
}
