//! Charges the time of reconciles and calls on the runtime's threads to their namespaces: the time for decoding,
//! digests, comparing and encoding. A namespace with long texts then waits behind others for its evaluations too.
//!
//! A poll does not block, so its wall time is close to its CPU time.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use signoff_executor::Evaluator;

/// A future that charges the time of its polls when it has ended or is dropped.
pub(crate) struct Charged<F> {
    future: Pin<Box<F>>,
    evaluator: Evaluator,
    namespace: Arc<str>,
    took: Duration,
}

impl<F: Future> Charged<F> {
    pub(crate) fn new(evaluator: &Evaluator, namespace: &Arc<str>, future: F) -> Self {
        let (evaluator, namespace) = (evaluator.clone(), Arc::clone(namespace));
        Self { future: Box::pin(future), evaluator, namespace, took: Duration::ZERO }
    }
}

impl<F: Future> Future for Charged<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let began = Instant::now();
        let polled = self.future.as_mut().poll(context);
        self.took += began.elapsed();
        polled
    }
}

impl<F> Drop for Charged<F> {
    fn drop(&mut self) {
        self.evaluator.charge(&self.namespace, self.took);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::{Mutex, mpsc};

    use signoff_executor::{EvaluatorSettings, Subject};

    use super::*;

    #[tokio::test]
    async fn work_outside_of_evaluations_is_charged_to_its_namespace() {
        let evaluator = Evaluator::start(EvaluatorSettings { threads: 1, ..EvaluatorSettings::default() }).unwrap();
        let subject = |namespace: &str| Subject { namespace: namespace.to_owned(), ..Subject::default() };
        let order = Arc::new(Mutex::new(Vec::new()));
        let note = |name: &'static str| {
            let order = Arc::clone(&order);
            move || order.lock().unwrap().push(name)
        };
        // The only thread is busy until both evaluations wait.
        let (release, waits) = mpsc::channel::<()>();
        let taken = tokio::spawn({
            let (evaluator, taken) = (evaluator.clone(), subject("taken"));
            async move { evaluator.run(taken, move || waits.recv().is_ok()).await }
        });
        while evaluator.begun() == 0 {
            tokio::task::yield_now().await;
        }
        let long = serde_json::to_string(&vec!["a long text"; 20_000]).unwrap();
        let parses = async { serde_json::from_str::<serde_json::Value>(&long).unwrap().as_array().map(Vec::len) };
        assert_eq!(Charged::new(&evaluator, &"parses".into(), parses).await, Some(20_000));
        let parses = evaluator.run(subject("parses"), note("parses"));
        let honest = evaluator.run(subject("honest"), note("honest"));
        let released = async {
            while evaluator.waiting() < 2 {
                tokio::task::yield_now().await;
            }
            release.send(()).unwrap();
        };
        let (parses, honest, ()) = tokio::join!(parses, honest, released);
        assert_eq!((parses, honest, taken.await.unwrap()), (Ok(()), Ok(()), Ok(true)));
        assert_eq!(*order.lock().unwrap(), ["honest", "parses"], "it parsed before");
    }
}
