use super::grants::{Asked, Grants, NoGrant, StillHeld};
use super::held::Lease;
use super::{Term, Tick};
use proptest::prelude::*;
use std::time::Duration;
use tepal_model::ServerId;

const TERM: Term = Term { length: Duration::from_millis(2_000), drift_ppm: 10_000, margin: Duration::from_millis(30) };
/// 2 s, 20 ms of drift, and the margin.
const WAIT: u64 = 2_050;
const SERVER: ServerId = ServerId(2);

fn at(millis: u64) -> Tick {
    Tick(Duration::from_millis(millis))
}

fn asked(arrived: Tick, adopted: u64) -> Asked {
    Asked { arrived, adopted, holds: true }
}

#[test]
fn the_holder_stops_before_the_leader_lets_go_however_long_the_request_took() {
    for transit in [0, 1, 500, 1_999, 10_000] {
        let lease = Lease::from_grant(at(0), TERM.length, 1);
        let mut grants = Grants::new(at(0), TERM);
        grants.grant(SERVER, 1, asked(at(transit), 1), 1).unwrap();
        let let_go = (0..).map(at).find(|&now| grants.declare(SERVER, 1, now).is_ok()).unwrap();
        assert_eq!(let_go, at(transit + WAIT));
        assert!(!lease.allows(1, let_go), "request under way for {transit} ms");
    }
}

#[test]
fn a_renewal_that_arrives_late_shortens_nothing() {
    let mut grants = Grants::new(at(0), TERM);
    assert!(grants.declare(SERVER, 1, at(0)).is_err());
    grants.grant(SERVER, 1, asked(at(9_000), 1), 1).unwrap();
    grants.grant(SERVER, 1, asked(at(8_000), 1), 1).unwrap();
    let left = Duration::from_millis(9_000 + WAIT - 10_100);
    assert_eq!(grants.declare(SERVER, 1, at(10_100)), Err(StillHeld { server: SERVER, left }));
    let (long, short) = (Lease::from_grant(at(9_000), TERM.length, 1), Lease::from_grant(at(8_000), TERM.length, 1));
    assert_eq!(long.renewed(short), long);
}

#[test]
fn a_new_leader_waits_out_what_may_have_been_granted_before_and_so_does_one_that_slept() {
    let mut grants = Grants::new(at(5_000), TERM);
    assert!(grants.declare(SERVER, 1, at(5_000)).is_err());
    assert!(grants.declare(SERVER, 1, at(5_000 + WAIT - 1)).is_err());
    grants.deaf_until(at(6_000));
    assert!(grants.declare(SERVER, 1, at(6_000 + WAIT - 1)).is_err());
    assert!(grants.declare(SERVER, 1, at(6_000 + WAIT)).is_ok());
}

/// Whoever holds one that is longer than those of today holds it still.
#[test]
fn leases_may_be_shortened_and_a_new_leader_waits_for_the_longest_that_there_was() {
    let short = Term { length: Duration::from_millis(500), ..TERM };
    let short_wait = short.wait().as_millis() as u64;
    let mut grants = Grants::new(at(0), TERM);
    assert_eq!(grants.grant(SERVER, 1, asked(at(5_000), 1), 1), Ok(TERM.length));
    grants.set_term(short, TERM, at(5_050));
    assert_eq!(grants.grant(SERVER, 1, asked(at(5_100), 1), 1), Ok(short.length));
    assert!(grants.declare(SERVER, 1, at(5_000 + WAIT - 1)).is_err(), "the longer one was granted first");
    assert!(grants.declare(SERVER, 1, at(5_000 + WAIT)).is_ok());

    let mut next = Grants::new(at(6_000), TERM);
    next.set_term(short, TERM, at(6_000));
    assert!(next.declare(SERVER, 1, at(6_000)).is_err());
    assert!(next.declare(SERVER, 1, at(6_000 + WAIT - 1)).is_err(), "it may have got a long one before");
    next.grant(SERVER, 1, asked(at(20_000), 1), 1).unwrap();
    assert!(next.declare(SERVER, 1, at(20_000 + short_wait - 1)).is_err());
    assert!(next.declare(SERVER, 1, at(20_000 + short_wait)).is_ok());

    assert!(!grants.long_ones_have_ended(at(5_050 + WAIT - 1)) && grants.long_ones_have_ended(at(5_050 + WAIT)));
    assert!(!next.long_ones_have_ended(at(6_000 + WAIT - 1)) && next.long_ones_have_ended(at(6_000 + WAIT)));
    // Those of after that needn't wait.
    let mut last = Grants::new(at(30_000), short);
    assert!(last.declare(SERVER, 1, at(30_000)).is_err());
    assert!(last.declare(SERVER, 1, at(30_000 + short_wait)).is_ok());
}

#[test]
fn whoever_is_being_declared_down_gets_no_lease_until_it_has_returned() {
    let mut grants = Grants::new(at(0), TERM);
    assert!(grants.declare(SERVER, 5, at(0)).is_err());
    grants.declare(SERVER, 5, at(WAIT)).unwrap();
    assert_eq!(grants.grant(SERVER, 5, asked(at(WAIT), 5), 5), Err(NoGrant::BeingDeclared));
    assert_eq!(grants.grant(SERVER, 7, asked(at(WAIT), 7), 7), Ok(TERM.length));
}

/// Story: a server that had been away for long returned, and was declared down before it could ask for a lease.
#[test]
fn a_server_that_has_just_come_up_has_time_to_ask_for_its_first_lease() {
    let mut grants = Grants::new(at(0), TERM);
    assert!(grants.declare(SERVER, 5, at(0)).is_err());
    grants.declare(SERVER, 5, at(WAIT)).unwrap();
    assert!(grants.declare(SERVER, 9, at(60_000)).is_err());
    assert!(grants.declare(SERVER, 9, at(60_000 + WAIT)).is_ok());
}

#[test]
fn a_view_is_adopted_once_every_server_said_so_or_its_leases_of_earlier_views_have_ended() {
    let mut grants = Grants::new(at(0), TERM);
    let adopted = |grants: &Grants, view, now| grants.adopted(view, [SERVER].into_iter(), at(now)).is_ok();
    assert!(!adopted(&grants, 1, WAIT - 1), "what was granted before this leader is unknown");
    grants.grant(SERVER, 1, asked(at(100), 3), 3).unwrap();
    assert!(adopted(&grants, 3, 100));
    assert!(!adopted(&grants, 4, 100 + WAIT - 1) && adopted(&grants, 4, 100 + WAIT));
    // A grant that carries view 4 doesn't end what it holds in view 3; that it says so does.
    grants.grant(SERVER, 1, asked(at(1_000), 3), 4).unwrap();
    assert!(!adopted(&grants, 4, 1_000));
    grants.grant(SERVER, 1, asked(at(1_100), 4), 4).unwrap();
    assert!(adopted(&grants, 4, 1_100));
}

#[test]
fn a_lease_is_of_no_use_in_an_earlier_view() {
    let lease = Lease::from_grant(at(0), TERM.length, 7);
    assert!(lease.allows(7, at(1)) && lease.allows(8, at(1)) && !lease.allows(6, at(1)));
    assert!(
        Lease::Alone.allows(0, at(1)) && !Lease::None.allows(9, at(1)) && !Lease::Down { view: 1 }.allows(9, at(1))
    );
}

/// Story: messages got from a server to the leader and none back. It served nobody, and was never declared down.
#[test]
fn a_server_that_is_heard_and_doesn_t_hear_gets_no_lease_after_a_while_and_can_be_declared_down() {
    let mut grants = Grants::new(at(0), TERM);
    let deaf = |arrived| Asked { arrived: at(arrived), adopted: 1, holds: false };
    grants.grant(SERVER, 1, Asked { holds: true, ..deaf(100) }, 1).unwrap();
    grants.grant(SERVER, 1, deaf(100 + WAIT - 1), 1).unwrap();
    assert_eq!(grants.grant(SERVER, 1, deaf(100 + WAIT), 1), Err(NoGrant::Deaf));
    assert!(grants.declare(SERVER, 1, at(100 + WAIT)).is_err());
    assert!(grants.declare(SERVER, 1, at(100 + 2 * WAIT)).is_ok());
}

/// What happens next in a history, after some milliseconds of true time.
#[derive(Clone, Debug)]
enum Step {
    /// A renewal leaves, and takes so long. The answer may take any time.
    Renew { there: u64 },
    /// The leader tries to declare the server down.
    Declare,
    /// Another leader is elected.
    Elect,
}

fn step() -> impl Strategy<Value = (u64, Step)> {
    let step = prop_oneof![
        4 => (0u64..3_000).prop_map(|there| Step::Renew { there }),
        4 => Just(Step::Declare),
        1 => Just(Step::Elect),
    ];
    (0u64..1_500, step)
}

/// A clock that runs at its own rate: true time to what it shows.
fn shown(rate_ppm: u64, offset: u64, truth: u64) -> Tick {
    Tick(Duration::from_micros(offset * 1_000 + truth * rate_ppm / 1_000))
}

/// Something that happens at a true time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Elect,
    Arrive { sent: u64 },
    Declare,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// Story: clocks run as differently as they may, messages take as long as they like and overtake each other, leaders
    /// change. When the server is declared down, no lease that it ever got is still good.
    #[test]
    fn nobody_serves_who_is_declared_down(
        steps in prop::collection::vec(step(), 1..40),
        holder in 995_100u64..1_004_900,
        leaders in prop::collection::vec(995_100u64..1_004_900, 41),
        offsets in prop::collection::vec(0u64..1_000_000, 42),
    ) {
        let mut events = Vec::new();
        let mut truth = 0;
        for (pause, step) in steps {
            truth += pause;
            events.push(match step {
                Step::Renew { there } => (truth + there, Event::Arrive { sent: truth }),
                Step::Declare => (truth, Event::Declare),
                Step::Elect => (truth, Event::Elect),
            });
        }
        events.sort();
        let mut leader = 0;
        let clock = |leader: usize, truth| shown(leaders[leader], offsets[leader], truth);
        let mut grants = Grants::new(clock(0, 0), TERM);
        // It's looked at from the beginning; see the watchman.
        let _ = grants.declare(SERVER, 1, clock(0, 0));
        let mut leases: Vec<Lease> = Vec::new();
        for (truth, event) in events {
            match event {
                Event::Elect => {
                    leader += 1;
                    grants = Grants::new(clock(leader, truth), TERM);
                    let _ = grants.declare(SERVER, 1, clock(leader, truth));
                }
                Event::Arrive { sent } => {
                    if grants.grant(SERVER, 1, asked(clock(leader, truth), 1), 1).is_ok() {
                        leases.push(Lease::from_grant(shown(holder, offsets[41], sent), TERM.length, 1));
                    }
                }
                Event::Declare => {
                    if grants.declare(SERVER, 1, clock(leader, truth)).is_ok() {
                        let now = shown(holder, offsets[41], truth);
                        prop_assert!(leases.iter().all(|lease| !lease.allows(1, now)), "{leases:?} at {now:?}");
                        // It's down for good in this history.
                        return Ok(());
                    }
                }
            }
        }
    }
}
