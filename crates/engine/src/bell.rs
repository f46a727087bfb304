//! Those who wait for something to happen.

use futures_channel::oneshot;

/// Those who have given up are forgotten as others come: while a drive is away requests give up and ask again without end.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    listeners: Vec<oneshot::Sender<()>>,
}

impl Bell {
    /// Resolves when it rings, or is gone.
    pub fn listen(&mut self) -> oneshot::Receiver<()> {
        if self.listeners.len() == self.listeners.capacity() {
            self.listeners.retain(|listener| !listener.is_canceled());
            // With room for as many again, a call looks at two of them on average, however many there are.
            self.listeners.reserve(self.listeners.len() + 1);
        }
        let (sender, receiver) = oneshot::channel();
        self.listeners.push(sender);
        receiver
    }

    /// Takes the bell itself: who hears it may ask for the lock that guards it, so it's taken out of there first.
    pub fn ring(self) {
        for listener in self.listeners {
            let _ = listener.send(()); // who has given up waiting needs no answer
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    /// Story: while a drive was away, every request gave up waiting for it and was asked again, some times a second. What was kept of
    /// those that had given up took gigabytes a day.
    #[test]
    fn of_who_has_given_up_waiting_nothing_is_kept() {
        let mut bell = Bell::default();
        let patient: Vec<_> = (0..10).map(|_| bell.listen()).collect();
        for _ in 0..10_000 {
            drop(bell.listen());
        }
        assert!(bell.listeners.capacity() < 100, "{} are kept", bell.listeners.capacity());
        bell.ring();
        assert!(patient.into_iter().all(|listener| listener.now_or_never() == Some(Ok(()))));
    }
}
