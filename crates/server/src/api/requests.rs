//! Requests of volumes and I/O of drives, in Prometheus's terms: how many, how long, how much, how many failed.

use crate::observed::meter::{BOUNDS_MICROS, Meter, Operation, Reading};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::fmt;

type Labels = [(&'static str, String); 2];

/// What meters of one kind of thing show, at one moment.
#[derive(Debug)]
pub struct Readings {
    /// Begins the names of the metrics.
    what: &'static str,
    all: Vec<(Labels, Reading)>,
}

impl Readings {
    /// `label` is the name of the label that says which thing it is.
    pub fn take<'a>(
        what: &'static str,
        label: &'static str,
        meters: impl IntoIterator<Item = (String, &'a Meter)>,
    ) -> Self {
        let of_one = |(name, meter): (String, &'a Meter)| {
            Operation::ALL.map(|operation| {
                let labels = [(label, name.clone()), ("operation", operation.as_str().to_owned())];
                (labels, meter.read(operation))
            })
        };
        Readings { what, all: meters.into_iter().flat_map(of_one).collect() }
    }

    fn counters(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&Reading) -> u64,
    ) -> fmt::Result {
        let name = format!("{}_{name}", self.what);
        let mut metric = encoder.encode_descriptor(&name, help, None, MetricType::Counter)?;
        for (labels, reading) in &self.all {
            metric.encode_family(labels)?.encode_counter::<NoLabelSet, u64, f64>(&value(reading), None)?;
        }
        Ok(())
    }
}

impl Collector for Readings {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let bounds = BOUNDS_MICROS.iter().map(|micros| *micros as f64 / 1e6).chain([f64::INFINITY]);
        let bounds: Vec<f64> = bounds.collect();
        let name = format!("{}_seconds", self.what);
        let help = "How long they took, since the server started";
        let mut metric = encoder.encode_descriptor(&name, help, None, MetricType::Histogram)?;
        for (labels, reading) in &self.all {
            let buckets: Vec<(f64, u64)> = bounds.iter().copied().zip(reading.buckets).collect();
            let count = reading.buckets.iter().sum();
            let mut one = metric.encode_family(labels)?;
            one.encode_histogram::<NoLabelSet>(reading.seconds, count, &buckets, None)?;
        }
        self.counters(&mut encoder, "bytes", "Bytes that those that didn't fail moved", |reading| reading.bytes)?;
        self.counters(&mut encoder, "errors", "How many failed", |reading| reading.errors)
    }
}
