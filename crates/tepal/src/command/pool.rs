//! `tepal pool`.

use super::{CommandError, identity};
use crate::cli::{CreatePoolArguments, Global, PoolCommand};
use crate::client::{Client, ClientError};
use crate::locate;
use crate::output::{self, Outcome, Output};
use tepal_server::api::types::{AddDrive, CreatePool, Done, DriveInfo, PoolInfo, SetPoolKey, path, route};

#[derive(Debug, thiserror::Error)]
#[error("{error}; pool {name} is made, with {drives} drives: `tepal drive add --pool {name}` adds the others")]
pub struct PoolError {
    name: String,
    drives: u32,
    error: ClientError,
}

pub fn run(global: &Global, output: Output, command: PoolCommand) -> Result<Outcome, CommandError> {
    let client = locate::client(global)?;
    match command {
        PoolCommand::Ls => {
            let pools: Vec<PoolInfo> = client.get(route::POOLS)?;
            output.show(&pools, |pools| list(pools))?;
        }
        PoolCommand::Show { name } => {
            let pool: PoolInfo = client.get(&path(route::POOL, &name))?;
            output.show(&pool, page)?;
        }
        PoolCommand::Create(arguments) => create(&client, output, arguments)?,
        PoolCommand::Grant { name, right, to } => identity::grant_on(&client, output, Some(&name), (right, to))?,
        PoolCommand::Revoke { name, to } => identity::revoke_on(&client, output, Some(&name), &to)?,
        PoolCommand::Rights { name } => identity::rights_on(&client, output, Some(&name))?,
        PoolCommand::Set { name, key, plain: _ } => {
            let pool: PoolInfo = client.post(&path(route::POOL_KEY, &name), &SetPoolKey { key })?;
            output.show(&pool, |pool| match &pool.key {
                Some(key) => format!("new volumes of pool {} are encrypted by key {key}", pool.name),
                None => format!("new volumes of pool {} aren't encrypted if nothing else is said", pool.name),
            })?;
        }
        PoolCommand::Rm { name } => {
            let done: Done = client.delete(&path(route::POOL, &name))?;
            output.show(&done, |_| format!("pool {name} is removed"))?;
        }
    }
    Ok(Outcome::Done)
}

fn create(client: &Client, output: Output, arguments: CreatePoolArguments) -> Result<(), CommandError> {
    let CreatePoolArguments { name, layout, drives } = arguments;
    let request = CreatePool { name: name.clone(), layout: layout.map(|layout| layout.to_string()) };
    let _: PoolInfo = client.create(route::POOLS, &request)?;
    for (place, done) in drives.iter().zip(0..) {
        let (server, path) = (place.server, place.path.clone());
        let request = AddDrive { server, path, pool: Some(name.clone()), create: None, force: false };
        if let Err(error) = client.post::<DriveInfo>(route::DRIVES, &request) {
            return Err(undone(client, name, done, error));
        }
    }
    let pool: PoolInfo = client.get(&path(route::POOL, &name))?;
    output.show(&pool, |pool| format!("pool {} is made, with {} drives", pool.name, pool.drives.len()))?;
    Ok(())
}

/// A pool whose first drive can't be had is as if it had never been asked for; one that has drives stays.
fn undone(client: &Client, name: String, drives: u32, error: ClientError) -> CommandError {
    if drives == 0 && client.delete::<Done>(&path(route::POOL, &name)).is_ok() {
        return error.into();
    }
    PoolError { name, drives, error }.into()
}

fn list(pools: &[PoolInfo]) -> String {
    let row = |pool: &PoolInfo| {
        vec![
            pool.name.clone(),
            pool.layout.clone().unwrap_or_default(),
            pool.drives.len().to_string(),
            pool.volumes.to_string(),
            output::size(pool.used),
            output::size(pool.capacity),
        ]
    };
    output::table(&["name", "layout", ">drives", ">volumes", ">used", ">capacity"], pools.iter().map(row))
}

fn page(pool: &PoolInfo) -> String {
    let drives: Vec<String> = pool.drives.iter().map(ToString::to_string).collect();
    output::facts(&[
        ("name", pool.name.clone()),
        ("layout", pool.layout.clone().unwrap_or_else(|| "stripe".to_owned())),
        ("encrypted by", pool.key.clone().unwrap_or_else(|| "nothing, if not asked for".to_owned())),
        ("volumes", pool.volumes.to_string()),
        ("space", format!("{} of {} used", output::size(pool.used), output::size(pool.capacity))),
        ("drives", drives.join(" ")),
    ])
}
