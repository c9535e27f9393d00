// An agent that charges a number of orders with Stripe's own SDK, unchanged.
// It keeps no state: when it is started again, it begins with the first order.
// The idempotency key, which any careful user of Stripe sets, is the identity of
// the call.
import Stripe from 'stripe';

const [port, orders] = process.argv.slice(2).map(Number);
const stripe = new Stripe('sk_test_example', { protocol: 'http', host: '127.0.0.1', port });

for (let n = 1; n <= orders; n++) {
  const order = `order-${n}`;
  const payment = await stripe.paymentIntents.create(
    { amount: 1000 + n, currency: 'eur', metadata: { order } },
    { idempotencyKey: order },
  );
  console.log(JSON.stringify({ order, outcome: payment.lastResponse.headers['counterfoil-outcome'], payment }));
}
