"""Real text for notebook 04: readers at a help desk, and chats of several turns.

The questions were written for the course. The answers are the model's own, SmolLM2-135M-Instruct
at temperature 0 with a repetition penalty of 1.1, cut after 90 tokens. Many of their facts are
wrong; their tokens are what counts here.
"""

LIBRARY_QUESTIONS = (
    "When does the branch at the station close?",
    "I lost my card yesterday. What does a new one cost?",
    "May my daughter borrow with my card?",
    "How many films can I take home at once?",
    "Can I borrow the town map of 1884?",
    "My book is six days late. How much do I owe?",
    "Is the reading room open on Sunday?",
    "How long do you keep a reserved book for me?",
    "Where can I scan my old photographs?",
    "Do you lend sewing machines?",
    "Can I renew my loan by telephone?",
    "What does a color print cost?",
)

CHATS = {
    "bread": (
        (
            "Why is bread dough left to rise?",
            "Bread dough remains to be baked until it reaches the perfect texture and flavor. "
            "It's created when yeast is added to flour, causing the yeast to produce carbon "
            "dioxide gas that creates the dough. This process of rising dough involves heating "
            "the dough in a warm environment for a short period before adding water to create "
            "steam, which then rises through fermentation and eventually cools down as the "
            "dough softens into its final shape.",
        ),
        (
            "How long should it rise in a cold kitchen?",
            "The ideal length of time for baking bread can vary greatly depending on various "
            "factors such as the type of bread being made, the desired level of chewiness or "
            "structure, and even personal preference. Generally speaking, a standard loaf of "
            "bread typically takes around 12-16 hours to bake at a temperature of 70°C "
            "(130°F). However, this can also depend on specific recipes and ingredients used. "
            "Some examples include",
        ),
        (
            "Can I leave it in the refrigerator overnight?",
            "While it may seem counterintuitive, leaving your bread out of the fridge "
            "overnight does have some benefits. In fact, many commercial bakeries use "
            "refrigeration to extend the shelf life of their products. By keeping bread in the "
            "fridge, they can ensure that it doesn't spoil too quickly due to bacterial growth "
            "during storage. Additionally, using refrigerated packaging allows them to "
            "maintain optimal temperatures throughout the entire production process, reducing "
            "waste and extending the lifespan of their products.",
        ),
        (
            "What happens if it rises for too long?",
            "When bread rises too long, it can become sticky and difficult to work with. This "
            'phenomenon is known as "leaky" bread. The increased moisture from the rising '
            "dough causes gluten to expand, making the bread prone to becoming overly sticky "
            "and hard. This can make it challenging to roll out and cut, and can even cause "
            "the bread to lose its texture.\n\nIn extreme cases, where the bread has reached "
            "an internal pitching point, it",
        ),
    ),
    "moon": (
        (
            "How far away is the Moon?",
            "The distance between Earth and the Moon varies depending on the observer's "
            "location. However, in 2019, the Moon was approximately 433,857 kilometers "
            "(262,150 miles) away from Earth. This value has been adjusted to make it easier "
            "for people around the world to understand. The exact distance of the Moon's orbit "
            "around our planet can be calculated using the formula:\n\nMoon's",
        ),
        (
            "How long does light take to get there?",
            "Light takes approximately 3 hours and 2 minutes to reach the edge of our solar "
            "system. This duration depends on various factors such as the speed at which light "
            "travels through space, including the speed of light itself. In other words, light "
            "reaches us from the Sun at exactly 186,282 miles per second. This is known as the "
            "speed of light.",
        ),
        (
            "Why do we always see the same side of it?",
            "This phenomenon occurs due to the rotation of the Earth. When you look at the "
            "Earth, imagine spinning on its axis. As the Earth spins, one side of the planet "
            "will face the Sun every day. On this particular day, the Northern Hemisphere will "
            "point towards the Sun, while the Southern Hemisphere will point away from it. "
            "This happens twice a year – once when the Earth is aligned with the Sun’s path "
            "across the sky during the equinoxes",
        ),
        (
            "Does the Moon have any air?",
            "No, the Moon doesn't actually have any air. It's made up of solid particles that "
            'are incredibly small and difficult to contain. These particles are called "lunar '
            'dust" or "grains." They\'re so fine they\'re too small to fit into your average '
            "glass of water. So, no, the Moon doesn't have any air whatsoever.",
        ),
    ),
    "python": (
        (
            "How do I reverse a list in Python?",
            "To reverse a list in Python using slicing is not possible due to the fact that "
            "lists in Python cannot be reversed. However, you can use the built-in "
            "`reversed()` function or the `list()` function with a custom iterator (like a "
            "list comprehension) but this will return a new list containing all elements "
            "except the first one which is why we need to reverse it manually. Here's "
            "how:\n\n```python\ndef reverse_list",
        ),
        (
            "Does that change the list itself?",
            "Yes, that changes the original list back into a new list where each element has "
            "been reversed and then returned as before. So, if you want to keep the original "
            "list unchanged, you should modify your code like so:\n\n```python\noriginal = "
            '[10, 20, 30]\nreverse_list(original)\nprint("Original:", original[::-1]) # '
            "Outputs: [10, 20",
        ),
        (
            "How do I sort it in descending order instead?",
            "Sorting a list in descending order can sometimes result in an unsorted list being "
            "returned. To avoid this, you can use the `sorted` function with a custom key that "
            "returns the value of the item on the left side of the key. This allows you to "
            "simply pass the list to `sorted`, without having to create a new sorted list from "
            "scratch.\n\nHere's an example:\n\n```python\nnumbers = [5,",
        ),
        (
            "What does sorted do differently?",
            "In Python, `sorted` is a built-in function that sorts a list based on its "
            "specified comparison criteria. It takes two arguments: the list to be sorted and "
            "the comparator function used for sorting. The default comparator is the `key` "
            "argument of the `sorted` function, which means that any object that implements "
            "the `sorted` protocol will have a `key` method that returns the values associated "
            "with that object.\n\nThe",
        ),
    ),
    "lisbon": (
        (
            "What should I see in Lisbon if I have one day?",
            "A dream come true. If you're planning to visit Lisbon on your own, here's what "
            "you might want to consider:\n\n1. **Lisbon's iconic landmarks:** Lisbon is famous "
            "for its architecture and history. You can explore the historic center of Lisbon, "
            "visit the iconic Lisbon Cathedral, and take a stroll through the beautiful Lisbon "
            "Beach.\n\n2. **Traditional Portuguese cuisine:** Lisbon has a rich culinary "
            "heritage that includes everything from traditional dishes",
        ),
        (
            "Where should I eat lunch?",
            "The perfect place to indulge in Lisbon's delicious food! Here's a top "
            "pick:\n\n**Calaça de Lisbon** (Serves 3) - This is a local restaurant with a "
            "passion for authentic Portuguese cuisine. It serves up a variety of dishes, "
            "including a classic Lisbon-style paella made with shrimp, sausage, and "
            "chicken.\n\n**Bacalara** (Serves 4) - This is a",
        ),
        (
            "Is it easy to walk everywhere?",
            "Absolutely, walking around Lisbon can be challenging but there are plenty of "
            "options available. You can easily navigate Lisbon's streets using public "
            "transportation like buses or trains. The Lisbon Metro is a popular option as "
            "well, offering various modes of transport throughout the city.\n\nAdditionally, "
            "there are many walking tours available, ranging from beginner to advanced levels, "
            "which cater to different skill levels. Some tours also offer guided walks within "
            "the city.\n\nIf you",
        ),
        (
            "What should I bring home as a present?",
            "As a gift, it really depends on personal preference. However, if you're looking "
            "for something unique, you could consider a souvenir from Lisbon. A small piece of "
            "the city's famous Lisbon-inspired art can add a touch of your own culture to your "
            "gift.\n\nSome other ideas include:\n\n* A small piece of the city's famous "
            "Lisbon-themed music\n* A souvenir of a local dish or drink\n* A",
        ),
    ),
}
