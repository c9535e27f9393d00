// What an agent with a bug might do: another charge under a key that is in use,
// and a charge without a key. The sidecar refuses both, and the SDK has to throw.
import Stripe from 'stripe';

const [port] = process.argv.slice(2).map(Number);
const stripe = new Stripe('sk_test_example', { protocol: 'http', host: '127.0.0.1', port });

for (const options of [{ idempotencyKey: 'order-1' }, {}]) {
  try {
    const payment = await stripe.paymentIntents.create({ amount: 999999, currency: 'eur' }, options);
    console.log(`returned ${JSON.stringify(payment)}`);
  } catch (error) {
    console.log(`threw ${error.type} ${error.statusCode} ${error.code}`);
  }
}
