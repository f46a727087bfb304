//! What a proposal costs on a disk: `proposal_speed FOLDER`, an empty folder there, which is left with a cluster in it.

use futures_util::future::try_join_all;
use std::error::Error;
use std::path::Path;
use std::time::Instant;
use tepal_metadata::{Command, DEFAULT_POOL, Metadata};
use tepal_model::{ClusterId, DriveId, ServerId};

const SERVER: ServerId = ServerId(1);
const COUNT: usize = 500;

fn create_volume(name: String) -> Command {
    Command::CreateVolume { name, size: 1 << 30, layout: None, pool: DEFAULT_POOL.to_owned() }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: proposal_speed FOLDER")?;
    let folder = Path::new(&folder);
    let metadata = Metadata::create(folder, ClusterId(1), "speed", SERVER, "127.0.0.1:7000", 0).await?;
    let (pool, path) = (DEFAULT_POOL.to_owned(), "/d1".to_owned());
    metadata
        .propose(Command::AddDrive { id: DriveId(1), server: SERVER, pool, path, capacity: 1 << 30, spare: false })
        .await?;
    let mut took = Vec::new();
    for n in 0..COUNT {
        let begin = Instant::now();
        metadata.propose(create_volume(format!("v{n}"))).await?;
        took.push(begin.elapsed());
    }
    took.sort();
    println!("one after another: median {:?}, 99 % {:?}", took[COUNT / 2], took[COUNT * 99 / 100]);
    let begin = Instant::now();
    try_join_all((0..COUNT).map(|n| metadata.propose(create_volume(format!("w{n}"))))).await?;
    println!("{COUNT} at once: {:?}", begin.elapsed());
    let begin = Instant::now();
    metadata.shutdown().await;
    println!("shutdown: {:?}", begin.elapsed());
    let begin = Instant::now();
    let metadata = Metadata::open(folder).await?;
    println!("open: {:?}", begin.elapsed());
    metadata.shutdown().await;
    Ok(())
}
