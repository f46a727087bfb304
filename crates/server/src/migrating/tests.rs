use super::*;
use tempfile::TempDir;
use tepal_metadata::{DEFAULT_POOL, Metadata, Reply};
use tepal_model::CHUNK;
use tepal_model::{ClusterId, DriveId, ServerId};

/// A server with two drives, and a volume of `chunks` that goes to two copies; in a folder.
async fn going(chunks: u64) -> (TempDir, Metadata) {
    let folder = tempfile::tempdir().expect("a folder");
    let metadata =
        Metadata::create(folder.path(), ClusterId(1), "test", ServerId(1), "unix:/s", 0).await.expect("a cluster");
    let pool = || DEFAULT_POOL.to_owned();
    for id in [1, 2] {
        let (id, server, path) = (DriveId(id), ServerId(1), format!("/d{id}"));
        done(&metadata, Command::AddDrive { id, server, pool: pool(), path, capacity: 1 << 30, spare: false }).await;
    }
    let layout = Some("stripe".to_owned());
    done(&metadata, Command::CreateVolume { name: "v".to_owned(), size: chunks * CHUNK, layout, pool: pool() }).await;
    let layout = Some("mirror:2".to_owned());
    done(
        &metadata,
        Command::BeginMigration {
            volume: "v".to_owned(),
            layout,
            alone: false,
            pool: None,
            range: None,
            seed: 7,
            rate: None,
        },
    )
    .await;
    (folder, metadata)
}

async fn done(metadata: &Metadata, command: Command) -> Reply {
    metadata.propose(command).await.expect("it's accepted")
}

fn only(state: &State) -> &MigrationRecord {
    state.migrations.values().next().expect("one is under way")
}

fn columns(state: &State) -> usize {
    state.maps[&only(state).target].columns.len()
}

#[tokio::test(flavor = "current_thread")]
async fn a_window_moves_on_when_all_columns_have_said_so_and_is_longer_or_shorter_as_the_last_one_took() {
    let (_folder, metadata) = going(400).await;
    let mut lengths = Vec::new();
    for lasted in [SHORT / 2, SHORT / 2, SHORT / 2, SHORT * 2, LONG * 2, LONG * 2, LONG * 2, LONG * 2, LONG * 2] {
        let state = metadata.state();
        let columns = columns(&state);
        assert_eq!(next(&state, only(&state), columns - 1, lasted), None, "one still takes over");
        done(&metadata, next(&state, only(&state), columns, lasted).expect("it goes on")).await;
        let state = metadata.state();
        lengths.push(only(&state).fence - only(&state).done);
    }
    assert_eq!(lengths, [16, 32, 40, 40, 20, 10, 5, 4, 4], "from a tenth to a hundredth of all");
}

#[tokio::test(flavor = "current_thread")]
async fn a_window_of_a_volume_of_a_pebibyte_is_no_longer_than_one_of_some_hundred_gibibytes() {
    for (chunks, longest, shortest) in [((1 << 50) / CHUNK, 4096, 409), ((1 << 40) / CHUNK, 4096, 409), (1000, 100, 10)]
    {
        let (_folder, metadata) = going(chunks).await;
        for (lasted, expected) in [(SHORT / 2, longest), (LONG * 2, shortest)] {
            for _ in 0..9 {
                let state = metadata.state();
                done(&metadata, next(&state, only(&state), columns(&state), lasted).expect("it goes on")).await;
                if expected == longest && chunks == 1000 {
                    break;
                }
            }
            let state = metadata.state();
            let record = only(&state);
            assert!(record.fence - record.done <= longest);
            if chunks > 1000 {
                assert_eq!(record.fence - record.done, expected, "of {chunks}");
            }
        }
    }
}

#[tokio::test(flavor = "current_thread")]
async fn all_windows_lead_to_the_end_also_of_one_chunk() {
    for chunks in [1, 2, 30] {
        let (_folder, metadata) = going(chunks).await;
        let mut windows = 0;
        while !metadata.state().migrations.is_empty() {
            let state = metadata.state();
            done(&metadata, next(&state, only(&state), columns(&state), SHORT).expect("it goes on")).await;
            windows += 1;
        }
        assert_eq!((windows <= chunks, metadata.state().maps.len()), (true, 1));
    }
}

#[tokio::test(flavor = "current_thread")]
async fn one_that_rests_stays_where_it_is_one_that_was_cancelled_turns_and_one_whose_volume_is_removed_ends() {
    let (_folder, metadata) = going(9).await;
    let id = only(&metadata.state()).id;
    let next_now = || {
        let state = metadata.state();
        next(&state, only(&state), columns(&state), SHORT)
    };
    done(&metadata, Command::PauseMigration { id, paused: true }).await;
    assert_eq!(next_now(), None);
    done(&metadata, Command::TurnMigration { id, cancelled: true }).await;
    let since = only(&metadata.state()).since;
    assert_eq!(next_now(), Some(Command::MoveWindow { id, since, to: (9, 9) }));
    done(&metadata, Command::RemoveVolume { name: "v".to_owned(), snapshots: false }).await;
    assert_eq!(next_now(), None);
}

#[tokio::test(flavor = "current_thread")]
async fn people_are_told_once_of_drives_that_have_been_away_for_long() {
    let (_folder, metadata) = going(9).await;
    let (migrations, begun) = (Migrations::default(), Instant::now());
    let id = only(&metadata.state()).id;
    let look = |after: Duration| {
        migrations.look(&metadata.state(), begun + after);
        migrations.to_be_told(begun + after)
    };
    assert!(look(Duration::ZERO).is_empty());
    let to = DriveState::Missing;
    done(&metadata, Command::SetDriveState { id: DriveId(1), to, reason: "pulled".into(), expected_view: None }).await;
    assert!(look(PATIENCE).is_empty(), "it may return soon");
    let told = look(PATIENCE * 2);
    assert_eq!(told.len(), 1);
    assert!(told[0].0 == id && told[0].1.contains(&DriveId(1).to_string()) && told[0].1.contains("away"), "{told:?}");
    assert!(look(PATIENCE * 3).is_empty(), "once");
}

#[tokio::test(flavor = "current_thread")]
async fn the_rate_is_that_of_the_last_half_minute_and_begins_anew_on_the_way_back() {
    let (_folder, metadata) = going(1000).await;
    let mut record = only(&metadata.state()).clone();
    let begun = Instant::now();
    let at = |seconds: u64| begun + Duration::from_secs(seconds);
    let mut watched = Watched::new(&record, CHUNK, begun);
    assert_eq!(watched.rate(at(5)), 0);
    // A window of ten chunks in ten seconds, then twice as fast.
    for (seconds, done) in [(10, 10), (20, 20), (30, 40), (40, 60), (50, 80), (60, 100)] {
        (record.done, record.fence) = (done, done + 20);
        watched.look(&record, vec![], at(seconds));
    }
    assert_eq!(watched.rate(at(60)) / CHUNK, 2);
    // Nothing comes any more.
    watched.look(&record, vec![], at(180));
    assert!(watched.rate(at(180)) < CHUNK);
    (record.done, record.fence, record.cancelled) = (880, 900, true);
    watched.look(&record, vec![], at(181));
    assert_eq!(watched.rate(at(190)), 0);
}
