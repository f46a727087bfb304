//! How much room there is.

use crate::capability::Capability;
use crate::driver::Driver;
use crate::failure::Failure;
use crate::parameters::Parameters;
use crate::sizes::bytes;
use crate::spec::{GetCapacityRequest, GetCapacityResponse, TopologyRequirement};
use crate::topology;
use tepal_model::Layout;
use tepal_model::layout::Protection;
use tepal_server::api::types::{DEFAULT_POOL, PoolInfo};

/// As of now, and as if all of it were for one volume: volumes take space as they are written to.
pub fn get(driver: &Driver, asked: GetCapacityRequest) -> Result<GetCapacityResponse, Failure> {
    asked.volume_capabilities.iter().try_for_each(|one| Capability::of(one).map(|_| ()))?;
    let Parameters { pool, layout, .. } = Parameters::of(&asked.parameters)?;
    let near =
        asked.accessible_topology.map(|place| TopologyRequirement { requisite: Vec::new(), preferred: vec![place] });
    let pool = match pool {
        Some(pool) => pool,
        None => topology::pool_near(&driver.cluster, near.as_ref())?.unwrap_or_else(|| DEFAULT_POOL.to_owned()),
    };
    let found = driver.cluster.pools()?.into_iter().find(|one| one.name == pool);
    let found = found.ok_or_else(|| Failure::invalid(format!("there is no pool '{pool}'")))?;
    let layout = layout.or_else(|| found.layout.as_ref()?.parse().ok()).unwrap_or_else(|| by_default(&found));
    Ok(GetCapacityResponse { available_capacity: bytes(room(&found, &layout)), ..Default::default() })
}

/// As the cluster does it.
fn by_default(pool: &PoolInfo) -> Layout {
    Layout::new(if pool.drives.len() > 1 { Protection::Mirror { copies: 2 } } else { Protection::Stripe })
}

/// Without copies.
fn room(pool: &PoolInfo, layout: &Layout) -> u64 {
    let fragments = layout.fragments();
    let (data, all) = (u128::from(fragments.data), u128::from(fragments.data) + u128::from(fragments.code));
    let free = u128::from(pool.capacity.saturating_sub(pool.used));
    u64::try_from(free * data / all.max(1)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_and_code_take_their_part_of_the_room() {
        let pool = |drives| PoolInfo {
            name: "p".to_owned(),
            layout: None,
            key: None,
            drives: (0..drives).map(tepal_model::DriveId).collect(),
            volumes: 0,
            capacity: 7000,
            used: 1000,
        };
        let layout = |text: &str| text.parse::<Layout>().expect("a layout");
        for (text, bytes) in [("stripe", 6000), ("mirror:3", 2000), ("ec:4+2", 4000)] {
            assert_eq!(room(&pool(6), &layout(text)), bytes, "{text}");
        }
        assert_eq!((room(&pool(1), &by_default(&pool(1))), room(&pool(2), &by_default(&pool(2)))), (6000, 3000));
    }
}
