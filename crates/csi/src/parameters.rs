//! What a StorageClass says of new volumes.

use crate::failure::Failure;
use std::collections::{BTreeMap, HashMap};
use tepal_model::size::Size;
use tepal_model::text::is_name;
use tepal_model::{Layout, Limits, Rate};

/// Begins what the orchestrator's own programs add.
const ORCHESTRATOR: &str = "csi.storage.k8s.io/";
/// Options of a layout, each a parameter of its own; they may stand in the layout as well.
const OF_LAYOUT: [&str; 5] = ["domain", "durability", "extent", "min_copies", "min_extra"];

/// Where a volume is to be, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// Whose drives it uses; none: not said.
    pub pool: Option<String>,
    /// How its data is kept; none: as the pool says.
    pub layout: Option<Layout>,
    /// It's encrypted: what the key is called that wraps its own.
    pub key: Option<String>,
    /// How much may be asked for of it.
    pub limits: Limits,
}

impl Parameters {
    /// # Errors
    ///
    /// If one isn't known, or not possible.
    pub fn of(said: &HashMap<String, String>) -> Result<Parameters, Failure> {
        let said: BTreeMap<&str, &str> = said
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .filter(|(key, _)| !key.starts_with(ORCHESTRATOR))
            .collect();
        let known =
            |key: &&str| ["pool", "layout", "key", "iops", "bandwidth"].contains(key) || OF_LAYOUT.contains(key);
        if let Some(unknown) = said.keys().find(|key| !known(key)) {
            return Err(Failure::invalid(format!(
                "there is no parameter '{unknown}': pool, layout, key, iops, bandwidth, {} are known",
                OF_LAYOUT.join(", ")
            )));
        }
        let named = |what: &str| {
            said.get(what).map(|name| match is_name(name) {
                true => Ok((*name).to_owned()),
                false => Err(Failure::invalid(format!("'{name}' is no {what}'s name"))),
            })
        };
        let options = OF_LAYOUT.iter().filter_map(|key| Some(format!(";{key}={}", said.get(key)?)));
        let options: String = options.collect();
        let layout = match said.get("layout") {
            Some(layout) => Some(format!("{layout}{options}")),
            None if options.is_empty() => None,
            None => return Err(Failure::invalid("options of a layout are given, and no parameter 'layout'")),
        };
        let layout = layout.map(|text| text.parse::<Layout>().map_err(|error| Failure::invalid(error.to_string())));
        let (pool, key) = (named("pool").transpose()?, named("key").transpose()?);
        let limits = Limits {
            iops: rate("iops", said.get("iops"), |text| text.parse().ok())?,
            bandwidth: rate("bandwidth", said.get("bandwidth"), |text| text.parse::<Size>().ok().map(|size| size.0))?,
            connections: None,
        };
        Ok(Parameters { pool, layout: layout.transpose()?, key, limits })
    }
}

/// So much a second, if it's said.
fn rate(what: &str, said: Option<&&str>, read: impl Fn(&str) -> Option<u64>) -> Result<Option<Rate>, Failure> {
    let Some(text) = said else { return Ok(None) };
    match read(text).filter(|per_second| *per_second > 0) {
        Some(per_second) => Ok(Some(Rate { per_second, burst: 0 })),
        None => Err(Failure::invalid(format!("'{text}' is no {what} for a second"))),
    }
}

/// Where parameters aren't possible.
///
/// # Errors
///
/// If there are any but the orchestrator's own.
pub fn none(what: &str, said: &HashMap<String, String>) -> Result<(), Failure> {
    match said.keys().filter(|key| !key.starts_with(ORCHESTRATOR)).min() {
        None => Ok(()),
        Some(key) => Err(Failure::invalid(format!("{what} takes no parameter '{key}'"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(said: &[(&str, &str)]) -> Result<Parameters, String> {
        let said = said.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Parameters::of(&said).map_err(|failure| failure.message)
    }

    #[test]
    fn a_layout_and_its_options_become_one_layout() {
        let said = [("pool", "fast"), ("layout", "mirror:2"), ("domain", "site"), ("csi.storage.k8s.io/pvc/name", "x")];
        let parameters = of(&said).expect("known");
        assert_eq!(parameters.pool.as_deref(), Some("fast"));
        assert_eq!(parameters.layout, "mirror:2;domain=site".parse().ok());
        let limits = of(&[("iops", "2000"), ("bandwidth", "100M")]).expect("known").limits;
        assert_eq!(limits.iops, Some(Rate { per_second: 2000, burst: 0 }));
        assert_eq!(limits.bandwidth.map(|rate| rate.per_second), Some(100 << 20));
        assert_eq!(of(&[]), Ok(Parameters::default()));
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        for (said, word) in [
            (&[("replicas", "2")][..], "'replicas'"),
            (&[("layout", "mirror:99")], "mirror"),
            (&[("domain", "site")], "'layout'"),
            (&[("pool", "../x")], "'../x' is no pool's name"),
            (&[("iops", "many")], "'many' is no iops"),
            (&[("bandwidth", "0")], "'0' is no bandwidth"),
            (&[("key", "a key")], "'a key' is no key's name"),
        ] {
            let refused = of(said).expect_err("refused");
            assert!(refused.contains(word), "{refused}");
        }
    }
}
