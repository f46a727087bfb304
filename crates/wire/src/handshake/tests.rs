use super::*;
use crate::frame::{Header, Limits};
use crate::{Inbox, Outbox, Payload};
use proptest::prelude::*;

const CLUSTER: ClusterId = ClusterId(0xc1);
const HOST: Host = Host { cluster: CLUSTER, server: ServerId(1), boot: 5 };
const CALLER: Sender = Sender::Server { server: ServerId(2), boot: 3 };
const GRANT: Grant = Grant { requests: 64, bytes: 1 << 20 };

fn hello() -> Hello {
    Hello { expects: Some(ServerId(1)), ..Hello::new(CLUSTER, CALLER, Role::Server, 0) }
}

/// Over a network, as the first frame of a connection.
fn over_the_network<T>(message: &impl Encode, hear: impl FnOnce(&Frame<'_>) -> T) -> T {
    let (mut outbox, mut inbox) = (Outbox::new(), Inbox::new());
    outbox.push(&Header::default(), message, &Payload::none());
    let taken: usize = outbox.slices().iter().map(|slice| inbox.receive(slice)).sum();
    assert_eq!(taken as u64, outbox.pending());
    hear(&inbox.next().unwrap().expect("all of it has come"))
}

fn heard(hello: &Hello) -> Result<Hello, Refused> {
    over_the_network(hello, |frame| HOST.hear(frame, |_| Standing::Member))
}

/// Bytes of any kind of frame.
struct Raw(Kind, Vec<u8>);

impl Encode for Raw {
    fn kind(&self) -> Kind {
        self.0
    }
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(&self.1);
    }
}

fn bytes_of(message: &impl Encode) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

#[test]
fn a_caller_that_the_cluster_knows_is_welcome() {
    assert_eq!(heard(&hello()), Ok(hello()));
    let welcome = HOST.welcome(&hello(), GRANT, true);
    let answer = over_the_network(&welcome, |frame| Calling::new(hello()).hear(frame));
    assert_eq!(answer, Ok(Welcome { version: 1, server: ServerId(1), boot: 5, grant: GRANT, known: true }));
    let gateway = Sender::Client { client: ClientId(9) };
    let anybody = Hello::new(CLUSTER, gateway, Role::Gateway, 3);
    assert_eq!(heard(&anybody), Ok(anybody));
    for cluster in [CLUSTER, ClusterId(0)] {
        let newcomer = Hello::new(cluster, Sender::Newcomer, Role::Server, 0);
        assert_eq!(heard(&newcomer), Ok(newcomer));
    }
}

#[test]
fn whoever_is_refused_is_told_why() {
    let from = |server, boot| Hello { sender: Sender::Server { server: ServerId(server), boot }, ..hello() };
    let cases = [
        (Hello { cluster: ClusterId(2), ..hello() }, Standing::Member, Reason::OtherCluster, "of cluster"),
        (Hello { cluster: ClusterId(0), ..hello() }, Standing::Member, Reason::OtherCluster, "of cluster"),
        (
            Hello { cluster: ClusterId(2), sender: Sender::Newcomer, ..hello() },
            Standing::Member,
            Reason::OtherCluster,
            "a new server of cluster",
        ),
        (Hello { expects: Some(ServerId(4)), ..hello() }, Standing::Member, Reason::OtherServer, "s4 was called"),
        (from(1, 6), Standing::Member, Reason::SameServerTwice, "boot 6 called boot 5"),
        (hello(), Standing::Unknown, Reason::UnknownServer, "s2 (boot 3) isn't in this cluster"),
        (hello(), Standing::Removed, Reason::NotAMember, "s2 (boot 3) was removed"),
        (hello(), Standing::Fenced, Reason::Fenced, "may not act"),
        (
            Hello { lowest: 2, highest: 9, ..hello() },
            Standing::Member,
            Reason::UnknownVersion,
            "versions 2 to 9 called",
        ),
    ];
    for (hello, standing, reason, text) in cases {
        let refused = over_the_network(&hello, |frame| HOST.hear(frame, |_| standing)).unwrap_err();
        assert_eq!(refused.reason, reason);
        assert!(refused.text.contains(text), "{}", refused.text);
        let answer = over_the_network(&refused, |frame| Calling::new(hello).hear(frame));
        assert_eq!(answer, Err(CallError::Refused(refused)));
    }
    assert!(heard(&from(1, 5)).is_ok(), "a server may call itself");
}

#[test]
fn a_hello_of_a_later_version_is_understood_as_far_as_it_concerns_us() {
    // One that still speaks version 1 has more to say at the end.
    let mut bytes = bytes_of(&Hello { highest: 7, ..hello() });
    bytes.extend([1, 2, 3]);
    let known = over_the_network(&Raw(Kind::Hello, bytes.clone()), |frame| HOST.hear(frame, |_| Standing::Member));
    let known = known.unwrap();
    assert_eq!(known, Hello { highest: 7, ..hello() });
    assert_eq!(HOST.welcome(&known, GRANT, false).version, 1);
    // One that doesn't may say anything behind its versions.
    let stranger = Raw(Kind::Hello, [&[2, 0, 7, 0][..], &[0xee; 1000]].concat());
    let refused = over_the_network(&stranger, |frame| HOST.hear(frame, |_| panic!("nobody knows who that is")));
    assert_eq!(refused.unwrap_err().reason, Reason::UnknownVersion);
    // One of this version has nothing more to say.
    bytes[2] = 1;
    let long = over_the_network(&Raw(Kind::Hello, bytes), |frame| HOST.hear(frame, |_| Standing::Member));
    assert_eq!(long.unwrap_err().reason, Reason::Broken);
}

#[test]
fn a_refusal_of_a_later_version_is_understood() {
    let mut bytes = bytes_of(&Refused { lowest: 3, highest: 4, reason: Reason::Other(99), text: "moon phase".into() });
    bytes.extend([1, 2, 3]);
    let error = over_the_network(&Raw(Kind::Refused, bytes), |frame| Calling::new(hello()).hear(frame)).unwrap_err();
    assert_eq!(error.to_string(), "refused for reason 99, which this version doesn't know: moon phase");
}

#[test]
fn nothing_but_a_hello_is_heard_first_and_nothing_but_its_answer_second() {
    let welcome = HOST.welcome(&hello(), GRANT, true);
    let refused = over_the_network(&welcome, |frame| HOST.hear(frame, |_| Standing::Member)).unwrap_err();
    assert_eq!(refused.reason, Reason::Broken);
    let error = over_the_network(&hello(), |frame| Calling::new(hello()).hear(frame)).unwrap_err();
    assert_eq!(error, CallError::Message(MessageError::Kind { found: Kind::Hello }));
    let request = Raw(Kind::VolumeRequest, vec![1; 20]);
    let refused = over_the_network(&request, |frame| HOST.hear(frame, |_| Standing::Member)).unwrap_err();
    assert_eq!(refused.reason, Reason::Broken);
}

#[test]
fn a_server_that_answers_what_was_not_asked_is_not_believed() {
    let welcome = HOST.welcome(&hello(), GRANT, true);
    let newer = Welcome { version: 2, ..welcome.clone() };
    let error = over_the_network(&newer, |frame| Calling::new(hello()).hear(frame)).unwrap_err();
    assert_eq!(error, CallError::Version { chosen: 2 });
    let other = Welcome { server: ServerId(8), ..welcome };
    let error = over_the_network(&other, |frame| Calling::new(hello()).hear(frame)).unwrap_err();
    assert_eq!(error, CallError::OtherServer { expected: ServerId(1), found: ServerId(8) });
}

#[test]
fn the_handshake_takes_no_more_than_its_small_share_of_memory() {
    let mut frame = Vec::new();
    crate::frame::append(&mut frame, &Header::default(), &Raw(Kind::Hello, vec![0; 5000]), &Payload::none());
    let mut inbox = Inbox::new();
    inbox.receive(&frame);
    let error = inbox.next().unwrap_err();
    assert_eq!(error, FrameError::MetaTooLong { length: 5000, most: Limits::HANDSHAKE.meta });
    assert_eq!(Refused::for_frame(&error).map(|refused| refused.reason), Some(Reason::Broken));
    assert_eq!(Refused::for_frame(&FrameError::Magic { found: b"GET ".to_vec() }), None);
    let version = Refused::for_frame(&FrameError::Version { found: 9 });
    assert_eq!(version.map(|refused| refused.reason), Some(Reason::UnknownVersion));
}

proptest! {
    /// Whatever a stranger says first, and whatever a false server answers.
    #[test]
    fn hostile_bytes_are_heard_without_harm(
        kind in prop::sample::select(vec![Kind::Hello, Kind::Welcome, Kind::Refused]),
        at: prop::sample::Index,
        bytes in prop::collection::vec(any::<u8>(), 0..40),
        is_whole: bool,
    ) {
        let mut said = if is_whole { bytes.clone() } else { bytes_of(&hello()) };
        if !is_whole && !bytes.is_empty() {
            let at = at.index(said.len());
            let end = (at + bytes.len()).min(said.len());
            said[at..end].copy_from_slice(&bytes[..end - at]);
        }
        let raw = Raw(kind, said);
        let heard = over_the_network(&raw, |frame| HOST.hear(frame, |_| Standing::Member));
        if let Ok(heard) = heard {
            prop_assert!(kind == Kind::Hello && (heard.cluster == CLUSTER || heard.cluster == ClusterId(0)));
        }
        let _ = over_the_network(&raw, |frame| Calling::new(hello()).hear(frame));
    }
}
