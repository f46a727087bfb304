//! `tepal pool`.

use super::CommandError;
use super::drive::DriveArgumentError;
use crate::cli::{CreatePoolArguments, Global, PoolCommand};
use crate::client::{Client, path};
use crate::locate;
use crate::output::{self, Outcome, Output};
use tepal_model::ServerId;
use tepal_server::api::types::{AddDrive, CreatePool, Done, DriveInfo, PoolInfo, route};

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
        PoolCommand::Rm { name } => {
            let done: Done = client.delete(&path(route::POOL, &name))?;
            output.show(&done, |_| format!("pool {name} is removed"))?;
        }
    }
    Ok(Outcome::Done)
}

fn create(client: &Client, output: Output, arguments: CreatePoolArguments) -> Result<(), CommandError> {
    let parse = |text: &String| {
        let (server, path) = text.split_once(':')?;
        let server: ServerId = server.parse().ok()?;
        (!path.is_empty()).then(|| (server, path.to_owned()))
    };
    // All are looked at before anything is done.
    let drives: Vec<(ServerId, String)> = arguments
        .drives
        .iter()
        .map(|text| parse(text).ok_or_else(|| DriveArgumentError::Place(text.chars().take(100).collect())))
        .collect::<Result<_, _>>()?;
    let name = arguments.name;
    let request = CreatePool { name: name.clone(), layout: arguments.layout.map(|layout| layout.to_string()) };
    let _: PoolInfo = client.post(route::POOLS, &request)?;
    for (server, path) in drives {
        let request = AddDrive { server, path, pool: Some(name.clone()), force: false };
        let _: DriveInfo = client.post(route::DRIVES, &request)?;
    }
    let pool: PoolInfo = client.get(&path(route::POOL, &name))?;
    output.show(&pool, |pool| format!("pool {} is made, with {} drives", pool.name, pool.drives.len()))?;
    Ok(())
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
        ("volumes", pool.volumes.to_string()),
        ("space", format!("{} of {} used", output::size(pool.used), output::size(pool.capacity))),
        ("drives", drives.join(" ")),
    ])
}
