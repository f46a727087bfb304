//! Data folders that are not what they claim to be.

use super::rig::{CLUSTER, Cluster, PATIENCE, address, has_pool, pool};
use crate::record::ServerState;
use crate::{JoinError, JoinRequest, Metadata, OpenError, ProposeError};
use std::path::Path;
use tepal_model::{ClusterId, ServerId};

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn replace(folder: &Path, by: &Path) {
    std::fs::remove_dir_all(folder).unwrap();
    copy(by, folder);
}

#[test]
fn a_folder_that_was_restored_from_an_old_copy_is_refused_and_the_server_can_join_anew() {
    let mut cluster = Cluster::of(3);
    let old = cluster.folder(90);
    cluster.kill(2);
    copy(&cluster.folder(2), &old);
    cluster.start(2).unwrap();
    cluster.run(2, |metadata| metadata.wait_for_its_place()).unwrap();
    for n in 0..5 {
        cluster.propose(2, pool(&format!("p{n}"))).unwrap();
    }
    cluster.kill(2);
    replace(&cluster.folder(2), &old);
    cluster.start(2).unwrap();
    let why = cluster.run(2, |metadata| metadata.failed());
    assert!(matches!(&why, ProposeError::Expelled(why) if why.contains("older copy")), "{why}");
    assert!(!*cluster.metadata(2).member.vouched.borrow(), "it never took part");
    cluster.kill(2);

    // Wiped, it comes back as the server that it was, but as another member.
    std::fs::remove_dir_all(cluster.folder(2)).unwrap();
    cluster.eventually("it's down", |cluster| cluster.is(1, 2, ServerState::Down));
    cluster.join(2, &[3], Some(ServerId(2))).unwrap();
    cluster.run(2, |metadata| metadata.wait_for_its_place()).unwrap();
    assert!(has_pool(&cluster.state(2), "p4"));
    let anew = crate::consensus::node_id(ServerId(2), 1);
    cluster.eventually("it votes anew", |cluster| cluster.voters(1) == [1, 3, anew].into());
    cluster.agree();
    // The old folder is void for good.
    cluster.kill(2);
    replace(&cluster.folder(2), &old);
    cluster.start(2).unwrap();
    let why = cluster.run(2, |metadata| metadata.failed());
    assert!(matches!(&why, ProposeError::Expelled(why) if why.contains("another data folder")), "{why}");
}

#[test]
fn an_id_can_be_claimed_only_while_its_server_is_down() {
    let mut cluster = Cluster::of(2);
    let refused = cluster.join(3, &[1], Some(ServerId(2))).unwrap_err();
    assert!(matches!(&refused, JoinError::StillUp(why) if why.to_string().contains("s2 is up")), "{refused}");
    let refused = cluster.join(3, &[1], Some(ServerId(9))).unwrap_err();
    assert!(matches!(&refused, JoinError::Refused(why) if why.contains("no server s9")), "{refused}");
}

#[test]
fn a_server_of_another_cluster_is_refused_by_name() {
    let cluster = Cluster::of(2);
    let folder = cluster.folder(80);
    std::fs::create_dir(&folder).unwrap();
    for (id, name) in [(Some(ClusterId(77)), None), (None, Some("other".to_owned()))] {
        let request = JoinRequest { cluster: id, name, through: vec![address(1)], address: address(8), claim: None };
        let joining = Metadata::join(&folder, &request, cluster.surroundings(8));
        let refused = cluster.run(1, |_| joining);
        assert!(matches!(&refused, Err(JoinError::Refused(why)) if why.contains("'test'")), "{:?}", refused.err());
    }
    assert_eq!(cluster.state(1).servers.len(), 2);
    // Nor is it heard among the members.
    let other = crate::peers::message::Envelope {
        cluster: Some(ClusterId(77)),
        from: Some(crate::peers::message::Sender { node: 2, boot: u64::MAX, history: 0 }),
        to: Some(1),
        request: crate::peers::message::Request::Adopted { view: 1 },
    };
    let link = cluster.surroundings(8).transport;
    let answer = cluster
        .run(1, |_| async move { crate::peers::network::call(&*link, &address(1), &other, &[], PATIENCE).await });
    assert!(answer.unwrap_err().to_string().contains("another cluster, 'test'"));
}

#[test]
fn a_folder_is_used_by_one_process_and_of_two_copies_only_one_is_heard() {
    let mut cluster = Cluster::of(3);
    let folder = cluster.folder(2);
    let opening = Metadata::open_among(&folder, cluster.surroundings(2));
    assert!(matches!(cluster.run(1, |_| opening), Err(OpenError::Locked(_))));
    // Somebody starts a copy elsewhere, which is as good as the original was.
    cluster.kill(2);
    let twin = cluster.folder(20);
    copy(&cluster.folder(2), &twin);
    cluster.start(2).unwrap();
    cluster.run(2, |metadata| metadata.wait_for_its_place()).unwrap();
    cluster.propose(2, pool("p")).unwrap();
    let opening = Metadata::open_among(&twin, cluster.surroundings(2));
    let twin = cluster.run(2, |_| opening).unwrap();
    let why = cluster.run(2, |_| twin.failed());
    assert!(matches!(why, ProposeError::Expelled(_)), "{why}");
    cluster.propose(2, pool("q")).unwrap();
    cluster.run(2, |_| twin.shutdown());
}

/// Story: the first server's folder is restored from a copy of when it was the only one. Alone it would lead, and serve
/// what others have taken over.
#[test]
fn a_copy_from_before_there_were_others_stops_when_they_show_themselves() {
    let mut cluster = Cluster::new();
    cluster.kill(1);
    let old = cluster.folder(90);
    copy(&cluster.folder(1), &old);
    cluster.start(1).unwrap();
    for server in [2, 3] {
        cluster.join(server, &[1], None).unwrap();
    }
    cluster.eventually("three vote", |cluster| (1..=3).all(|server| cluster.agreed_voters(server) == 3));
    cluster.kill(1);
    replace(&cluster.folder(1), &old);
    cluster.start(1).unwrap();
    let why = cluster.run(1, |metadata| metadata.failed());
    assert!(matches!(&why, ProposeError::Expelled(_)), "{why}");
    assert_eq!(cluster.metadata(1).lease(), crate::Lease::None);
    assert_eq!(cluster.run(2, |_| async { CLUSTER }), cluster.state(2).cluster.id);
}
